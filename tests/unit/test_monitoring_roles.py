"""What the monitoring roles refuse, and when they renew a token: their own expressions, evaluated without Ansible."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from kit.ansible_roles import ROLES, Evaluated, named, settings, tasks

TLS = {"cert_file": "a.pem", "key_file": "a.key"}
CLIENTS = TLS | {"client_auth_type": "RequireAndVerifyClientCert"}
USERS = {"ada": "$2b$12$"}


def refused(role: str, words: str, **given: Any) -> bool:
    asserted = named(role, "preflight", words)["ansible.builtin.assert"]["that"]
    return Evaluated(role, **given).of(asserted) is False


@pytest.mark.parametrize("listen", ["127.0.0.1:9090", "127.0.0.1", "localhost:9090", "[::1]:9090", "::1"])
def test_what_its_own_host_reaches_needs_nothing(listen: str) -> None:
    assert not refused("package", "open to everybody", package_listen=listen, package_web={})


@pytest.mark.parametrize(
    ("web", "open_to_all"),
    [
        ({}, True),
        ({"tls_server_config": TLS}, True),
        ({"tls_server_config": None, "basic_auth_users": USERS}, True),
        ({"basic_auth_users": USERS}, True),
        ({"tls_server_config": TLS, "basic_auth_users": {}}, True),
        ({"tls_server_config": TLS, "basic_auth_users": None}, True),
        ({"tls_server_config": TLS | {"client_auth_type": "RequestClientCert", "client_ca_file": "ca.pem"}}, True),
        ({"tls_server_config": CLIENTS}, True),  # which takes the certificates of the system's authorities
        ({"tls_server_config": CLIENTS | {"client_ca_file": "ca.pem"}}, False),
        ({"tls_server_config": TLS, "basic_auth_users": USERS}, False),
    ],
)
def test_encryption_alone_keeps_nobody_out(web: dict[str, Any], open_to_all: bool) -> None:
    for listen in ("0.0.0.0:9090", ":9090", "192.0.2.1:9090", "127.example.org:9090", "localhost.example.org:9090"):
        assert refused("package", "open to everybody", package_listen=listen, package_web=web) is open_to_all, listen


@pytest.mark.parametrize("role", ["prometheus", "alertmanager"])
def test_each_gives_its_own_address_and_web_configuration_to_be_judged(role: str) -> None:
    given = named(role, "preflight", "who could reach it")["vars"]
    assert given["package_listen"] == f"{{{{ {role}_listen }}}}"
    assert given["package_web"] == f"{{{{ {role}_web }}}}"
    assert given["package_web_name"] == f"{role}_web"


@pytest.mark.parametrize(
    ("address", "password", "expected"),
    [
        ("127.0.0.1", None, False),
        ("::1", None, False),
        ("0.0.0.0", None, True),
        ("0.0.0.0", "", True),
        ("192.0.2.1", "admin", True),
        ("192.0.2.1", "correct horse", False),
        ("192.0.2.1", 31415926, False),
    ],
)
def test_a_grafana_that_others_reach_has_a_password_of_its_own(address: str, password: Any, expected: bool) -> None:
    given = {} if password is None else {"GF_SECURITY_ADMIN_PASSWORD": password}
    assert refused("grafana", "password", grafana_address=address, grafana_settings=given) is expected


def test_a_grafana_that_others_reach_has_certificate_and_key() -> None:
    both = {"grafana_certificate": "a.pem", "grafana_key": "a.key"}
    for given, expected in (({}, True), ({"grafana_key": "a.key"}, True), (both, False)):
        assert refused("grafana", "listen to", grafana_address="0.0.0.0", **given) is expected


def test_what_a_service_is_started_with_is_its_hosts_secret() -> None:
    task = named("package", "main", "how the service is started")
    assert (task["ansible.builtin.copy"]["mode"], task["no_log"], task["diff"]) == ("0640", True, False)
    for role, option in (("package", "package_default_text"), ("grafana", "grafana_settings")):
        specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
        assert specs["argument_specs"]["main"]["options"][option]["no_log"] is True


@pytest.mark.parametrize(("status", "seconds"), [(0, 86_400), (1, 0)])
def test_a_repository_that_was_named_just_now_is_read(status: int, seconds: int) -> None:
    valid = named("package", "main", "Install the package")["ansible.builtin.apt"]["cache_valid_time"]
    assert Evaluated("package", package_known={"rc": status}).of(str(valid).strip("{} ")) == seconds


@pytest.mark.parametrize("key", ["", "grafana.asc"])
def test_the_key_of_a_repository_goes_with_it(key: str) -> None:
    files = named("grafana", "remove", "Take the package away")["vars"]["package_files"]
    found = Evaluated("grafana", grafana_repository_key=key).of(files.strip("{} \n")) if "{{" in files else files
    assert ("/etc/apt/keyrings/grafana.asc" in found) is bool(key)


def listed(life_days: float, age_days: float, **more: Any) -> dict[str, Any]:
    made = datetime.now(UTC) - timedelta(days=age_days)
    ends = made + timedelta(days=life_days)
    times = {"created": made.isoformat(timespec="seconds"), "expires": ends.isoformat(timespec="seconds")}
    about = {"id": "5f0c", "user": "root", "label": "prometheus on head", "read_only": True}
    return about | times | {"expired": ends < datetime.now(UTC)} | more


def tokens(found: list[dict[str, Any]], **given: Any) -> Evaluated:
    return Evaluated(
        "prometheus", inventory_hostname="head", prometheus_label="prometheus on head",
        prometheus_tokens={"stdout": json.dumps({"tokens": found})}, **{"prometheus_held": {"stdout": "5f0c"}} | given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "lasts"),
    [
        ([listed(365, 1)], True),
        ([listed(365, 300)], True),
        ([listed(365, 310)], False),
        ([listed(30, 24)], True),  # by its own life, whatever others would have
        ([listed(30, 26)], False),
        ([listed(30, 31)], False),
        ([], False),  # revoked
        ([listed(365, 1, id="77aa")], False),  # another one lies here
        ([listed(365, 1, label="laptop")], False),
        ([listed(365, 1, read_only=False)], False),
        ([listed(365, 310, id="77aa"), listed(365, 1)], True),
    ],
)
def test_a_token_is_made_anew_in_time_and_where_the_scheduler_takes_it_no_more(
    found: list[dict[str, Any]], lasts: bool
) -> None:
    evaluated = tokens(found)
    assert evaluated.of("prometheus_lasts") is lasts
    assert named("prometheus", "identity", "Have the scheduler make one")  # in the block of that condition
    every = yaml.safe_load((ROLES / "prometheus/tasks/identity.yml").read_text(encoding="utf-8"))
    (block,) = [each for each in every if "block" in each]
    assert evaluated.of(block["when"][0]) is not lasts
    assert tokens(found, prometheus_renew_days=0).of("prometheus_lasts") is False


def test_a_host_without_a_token_gets_one() -> None:
    assert tokens([listed(365, 1)], prometheus_held={"stdout": ""}).of("prometheus_lasts") is False


def test_the_old_token_is_revoked_after_the_new_one_is_there() -> None:
    names = [each["name"] for each in tasks("prometheus", "identity")]
    order = [next(at for at, name in enumerate(names) if words in name) for words in ("make one", "Write it", "Revoke")]
    assert order == sorted(order)
    (revoked,) = tasks("prometheus", "revoke")
    kept = named("prometheus", "identity", "Revoke")["vars"]["prometheus_kept"]
    for age, expected in ((1, ["77aa"]), (310, ["5f0c", "77aa"])):
        found = [listed(365, age), listed(365, 310, id="77aa"), listed(365, 1, id="88bb", label="laptop")]
        gone = tokens(found, prometheus_kept=kept).of(revoked["loop"].strip("{} "))
        assert gone == expected


@pytest.mark.parametrize(
    ("role", "file"),
    [("prometheus", "prometheus"), ("alertmanager", "prometheus-alertmanager"), ("grafana", "grafana-server")],
)
def test_each_part_of_a_role_is_about_the_same_package(role: str, file: str) -> None:
    found = set()
    for name in ("install", "preflight", "remove"):
        for each in tasks(role, name):
            if each.get("ansible.builtin.include_role", {}).get("name") == "package":
                path = Evaluated("package", role, **each["vars"]).text("{{ package_default }}")
                found.add((name, path))
    assert found == {(name, f"/etc/default/{file}") for name in ("install", "preflight", "remove")}


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (None, []),
        ({}, []),
        ({"desk1": {}, "desk2": {"node_agent_name": "d2"}}, ["desk1=192.0.2.1:7425", "d2=desk2:7425"]),
        ({"desk1": {"local_load_listen": "192.0.2.1:99"}}, ["desk1=192.0.2.1:99"]),
        ({"desk1": {"local_load_listen": "127.0.0.1:7425"}}, []),  # which Prometheus does not reach
        ({"head": {"local_load_listen": "127.0.0.1:7425"}}, ["head=127.0.0.1:7425"]),
        ({"head": {"local_load_listen": "[::1]:7425"}}, ["head=127.0.0.1:7425"]),
    ],
)
def test_prometheus_scrapes_desks_with_a_synthetic_user(users: dict[str, Any] | None, expected: list[str]) -> None:
    groups = {} if users is None else {"cosched_local_load": list(users)}
    hostvars = {
        name: ({"ansible_host": "192.0.2.1"} if name == "desk1" else {}) | own for name, own in (users or {}).items()
    }
    evaluated = Evaluated("prometheus", groups=groups, hostvars=hostvars, inventory_hostname="head")
    assert evaluated.rendered(settings("prometheus")["prometheus_desks"]).split() == expected


@pytest.mark.parametrize(
    ("groups", "listen"),
    [
        ({}, "127.0.0.1:7425"),
        ({"cosched_monitoring": []}, "127.0.0.1:7425"),
        ({"cosched_monitoring": ["head"]}, "0.0.0.0:7425"),
    ],
)
def test_synthetic_user_is_reached_from_others_only_where_it_is_scraped(groups: dict[str, Any], listen: str) -> None:
    assert Evaluated("local_load", groups=groups).of("local_load_listen") == listen
