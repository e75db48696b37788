"""A job's environment: what it says of the job, who wins over whom, what is refused."""

import dataclasses

import pytest

from cosched.errors import BadInput
from cosched.wire.hostfile import hostfile, peer_named
from cosched.wire.messages import LOCAL_VALUES, JobFile, Peer
from cosched.wire.version_4 import known_environment
from space_scheduler.launch import LAUNCHERS, Context, check_environment, job_environment, job_files

A, B = Peer("desk1.lab.example", "10.0.0.1", 7421, 2), Peer("desk2.lab.example", "10.0.0.2", 7421, 1)


@pytest.fixture
def context() -> Context:
    return Context(
        job_id=12, attempt=2, name="cavity", tasks=3, user="ann", cluster="lab", peers=(A, B), network="10.0.0.0/24",
        submitted={"PATH": "/opt/mpi/bin:/usr/bin", "LANG": "C.UTF-8"},
    )  # fmt: skip


def test_a_job_finds_itself_in_its_environment(context: Context) -> None:
    told = {k: v for k, v in job_environment(context).items() if k.startswith("COSCHED_")}
    assert told == {
        "COSCHED_JOB_ID": "12",
        "COSCHED_ATTEMPT": "2",
        "COSCHED_JOB_NAME": "cavity",
        "COSCHED_CLUSTER": "lab",
        "COSCHED_TASKS": "3",
        "COSCHED_NODE_COUNT": "2",
        "COSCHED_NODES": "desk1.lab.example,desk2.lab.example",
        "COSCHED_TASKS_PER_NODE": "2,1",
        "COSCHED_NODE_FILE": "{node_file}",
        "COSCHED_PVMD": "{pvmd}",
        "COSCHED_RANK_WITNESS": "{rank}",
    }


def test_both_open_mpis_are_told_the_same(context: Context) -> None:
    environment = job_environment(context)
    assert environment["PRTE_MCA_plm_ssh_agent"] == environment["OMPI_MCA_plm_rsh_agent"] == "{rsh}"
    assert (
        environment["PRTE_MCA_prte_default_hostfile"] == environment["OMPI_MCA_orte_default_hostfile"] == "{node_file}"
    )
    networks = {k: v for k, v in environment.items() if k.endswith("_if_include")}
    assert set(networks.values()) == {"10.0.0.0/24"}
    assert len(networks) == 3


def test_environment_names_local_values_and_files_of_the_job_alone(context: Context) -> None:
    files = job_files(context, A.name)
    names = {value for value in job_environment(context).values() if value.startswith("{")}
    assert names <= {*LOCAL_VALUES, *(file.value for file in files)}
    assert len({file.value for file in files}) == len({file.name for file in files}) == len(files)


def test_environment_for_version_4_agents_has_no_values_of_later_launchers() -> None:
    files = (JobFile("{hosts}", "hosts", ""), JobFile("{node_file}", "nodes", ""))
    made = {"A": "{hosts}", "B": "{host_name}", "C": "{node_file}", "D": "{tmp}", "E": "{other}"}
    assert set(known_environment(made, files)) == {"C", "D", "E"}


def test_a_job_on_one_node_talks_over_loopback(context: Context) -> None:
    alone = job_environment(dataclasses.replace(context, peers=(A,), tasks=2))
    networks = {k: v for k, v in alone.items() if k.endswith("_if_include")}
    assert networks == {"OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8"}


def test_what_was_submitted_wins_over_defaults_and_loses_to_what_is_required(context: Context) -> None:
    mine = {
        "OMPI_MCA_mpi_yield_when_idle": "0",
        "OMPI_MCA_plm_rsh_agent": "ssh",
        "PATH": "/mine",
        "TMPDIR": "/elsewhere",
    }
    environment = job_environment(dataclasses.replace(context, submitted=mine))
    assert environment["OMPI_MCA_mpi_yield_when_idle"] == "0"
    assert environment["PATH"] == "/mine"
    assert environment["OMPI_MCA_plm_rsh_agent"] == "{rsh}"
    assert environment["TMPDIR"] == "{tmp}"


def test_a_search_path_is_there_also_when_none_was_submitted(context: Context) -> None:
    assert "/usr/bin" in job_environment(dataclasses.replace(context, submitted={}))["PATH"].split(":")


@pytest.mark.parametrize(
    "name", ["SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PBS_NODEFILE", "COSCHED_SECRET"]
)
def test_what_another_job_left_in_the_environment_stays_out(context: Context, name: str) -> None:
    assert name not in job_environment(dataclasses.replace(context, submitted={name: "1"}))


def test_only_roots_jobs_are_allowed_to_run_as_root(context: Context) -> None:
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in job_environment(context)
    assert job_environment(dataclasses.replace(context, user="root"))["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"


def test_no_two_launchers_disagree(context: Context) -> None:
    for part in ("required", "defaults"):
        seen: dict[str, str] = {}
        for launcher in LAUNCHERS:
            for name, value in getattr(launcher, part)(context).items():
                assert seen.setdefault(name, value) == value, f"{launcher.name}: {name}"


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({"A B": "1"}, "environment.'A B'"),
        ({"": "1"}, "environment.''"),
        ({"A=": "1"}, "environment.'A='"),
        ({"1A": "1"}, "environment.'1A'"),
        ({"A": "1\0"}, "environment.A"),
        ({"A": "x" * (128 << 10)}, "environment"),
        ({"A": "\udcff" * (128 << 10)}, "environment"),
    ],
)
def test_an_environment_that_no_program_can_have_is_refused(environment: dict[str, str], where: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_environment(environment)
    assert refused.value.where == where


def test_an_ordinary_environment_is_accepted() -> None:
    check_environment({"PATH": "/usr/bin", "_x1": "", "EMPTY": "", "GREETING": "grüß dich\nzwei Zeilen"})


def test_the_node_file_has_addresses_and_a_job_on_one_node_localhost() -> None:
    assert hostfile([A, B]) == "10.0.0.1 slots=2\n10.0.0.2 slots=1\n"
    assert hostfile([A]) == "localhost slots=2\n"


def test_a_host_is_known_by_its_name_address_or_short_name() -> None:
    for host in ("desk2.lab.example", "10.0.0.2", "desk2", "Desk2", "DESK2.lab.example."):
        assert peer_named(host, [A, B]) == B
    assert peer_named("localhost", [A]) == A


@pytest.mark.parametrize("host", ["desk3", "10.0.0.3", "10", "localhost", ""])
def test_another_host_is_nobody(host: str) -> None:
    assert peer_named(host, [A, B]) is None


def test_a_short_name_that_two_share_is_nobody() -> None:
    assert peer_named("desk1", [A, Peer("desk1.other.example", "10.0.1.1", 7421, 1)]) is None
