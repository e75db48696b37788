"""What the campaign ``guides`` types, in its order: lines of the guides, and what the guides take to be there.

Each command line of the pages is in an act here, or in :data:`LEFT` with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final[Mapping[str, Path]] = {
    "readme": ROOT / "README.md",
    **{
        name: ROOT / f"docs/guide/{name}.md"
        for name in ("installation", "ansible", "operate", "keys", "desk", "runbooks")
    },
}
#: The machine of the checkout, which has a network; and the same one on the network of the hosts.
HERE, OVER_THERE = "here", "controller"
#: What stands in the guides, and what it is on the campaign's hosts.
ADDRESSES: Final = {"192.0.2.12": "10.88.0.13", "192.0.2.14": "10.88.0.15"}
DESKS: Final = ("desk1", "desk2", "desk3", "desk4")


@dataclass(frozen=True, kw_only=True)
class Act:
    """A line that is typed, where, as which account, and what must come of it."""

    page: str = ""  # none: no line of a guide, but what it takes to be there
    line: str
    on: str
    user: str = "root"
    put: Mapping[str, str] = field(default_factory=dict)  # in place of words of the line, and of what the page shows
    status: int = 0
    shown: int | None = None  # so many of the lines that the page shows must be printed [all]
    sees: tuple[str, ...] = ()  # patterns that what is printed must have
    until: bool = False  # typed again until it is so
    bound_s: float = 60

    def put_in(self, text: str) -> str:
        """A text with this campaign's words in place of the page's."""
        for old, new in {**self.put, **ADDRESSES}.items():
            text = text.replace(old, new)
        return text

    @property
    def text(self) -> str:
        """What is typed."""
        return self.put_in(self.line)


def _set(on: str, line: str, user: str = "root", **more: Any) -> Act:
    return Act(line=line, on=on, user=user, **more)


def _of(page: str, on: str, line: str, user: str = "root", **more: Any) -> Act:
    return Act(page=page, line=line, on=on, user=user, **more)


JOB: Final = "#!/bin/sh\\n#COSCHED --time 2min\\nmpirun hostname\\n"
LONG: Final = "#!/bin/sh\\nsleep 600\\n"
_UP: Final = r"^{}\s+up\b"

_PACKAGES: Final = (
    _set(HERE, "[ -d cosched ] || git clone -q $SOURCE cosched; cd cosched"),
    _of("installation", HERE, "./run wheelhouse build/wheels --python 3.11,3.12,3.13", bound_s=900),
    _of("installation", HERE, "./run wheelhouse build/head --extra scheduler", bound_s=600),
    _set(HERE, "cp -r build/head $HOSTS/head/root/root/wheels"),
    *(_set(HERE, f"cp -r build/wheels $HOSTS/{name}/root/root/wheels") for name in DESKS),
    *(
        _of("installation", name, line, bound_s=300)
        for name in ("head", *DESKS)
        for line in (
            "python3 -m venv --without-pip /opt/cosched",
            'python3 "$(echo wheels/pip-*.whl)/pip" --python /opt/cosched/bin/python install --no-index'
            " --find-links wheels --require-hashes -r wheels/requirements.txt",
            "ln -s /opt/cosched/bin/cosched /usr/local/bin/cosched",
        )
    ),
    _of("installation", "head", "cosched node render --name desk1 --cluster office --scheduler head.example", "ada"),
    _of(
        "installation", "head",
        "cosched node render --role scheduler --cluster office --node desk1 --node desk2 --json", "ada",
        sees=('"role": ?"scheduler"',),
    ),
    _of("installation", "head", "cosched node render --role local-load --into build/desk1", "ada"),
    _set("head", "test -f build/desk1/etc/systemd/system/cosched-local-load.service", "ada"),
)  # fmt: skip

_CLUSTER: Final = (
    *(_set(name, "sed -i 's/ head$/ head head.example/' /etc/hosts") for name in ("head", *DESKS)),
    *(
        _set(name, f"printf '{JOB}' >job.sh; printf '{LONG}' >long.sh", "ada")
        for name in ("head", *DESKS)
    ),
    _of(
        "operate", "head",
        "cosched init office --scheduler head.example --node desk1 --node desk2=192.0.2.12 --user ada",
    ),
    _of(
        "operate", "head", "cosched node render --role scheduler --cluster office … --into /",
        put={"…": "--node desk1 --node desk2"},
    ),
    _of("operate", "head", "systemd-sysusers"),
    _of("operate", "head", "systemd-tmpfiles --create"),
    _of("operate", "head", "systemctl daemon-reload"),
    _set(
        "head",  # as `init` has said
        "set -e; cp office/scheduler/cluster.yaml /etc/cosched/; mkdir -p /etc/cosched/identity\n"
        "cosched identity request scheduler --into /etc/cosched/identity >scheduler.csr\n"
        "cosched identity sign --authority office/authority --address head.example scheduler <scheduler.csr"
        " >scheduler.json\n"
        "cosched identity accept --kind scheduler --into /etc/cosched/identity --account cosched-scheduler"
        " scheduler.json; set +e",
    ),
    _of(
        "operate", "head", "cosched scheduler --check",
        put={"cosched scheduler": "runuser -u cosched-scheduler -- cosched scheduler"},
    ),
    _of("operate", "head", "systemctl enable --now cosched-scheduler"),
    _set("head", "cosched nodes", "ada", sees=(r"^desk1\s+unknown", r"^desk2\s+unknown")),
)  # fmt: skip

#: desk1 by hand, desk2 over ssh.
_DESKS: Final = (
    _set("desk1", "printf '[security]\\ndesk_users = [\"ada\"]\\n' >more.toml"),
    _of(
        "operate", "desk1",
        "cosched node render --name desk1 --cluster office --scheduler head.example --into /",
        put={"--into": "--extra more.toml --into"},
    ),
    _set("desk1", "systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload"),
    _of("installation", "desk1", "cosched node request desk1 >desk1.csr"),
    _set(HERE, "cp $HOSTS/desk1/root/root/desk1.csr $HOSTS/head/root/root/"),
    _of("installation", "head", "cosched node sign desk1 desk1.csr --cluster office >desk1.json"),
    _of("installation", "head", "cosched node admit desk1"),
    _set(HERE, "cp $HOSTS/head/root/root/desk1.json $HOSTS/desk1/root/root/"),
    _of("installation", "desk1", "cosched node accept desk1.json"),
    _of("operate", "desk1", "systemctl enable --now cosched-guard"),
    _of("operate", "desk1", "cosched agent --check"),
    _of("operate", "desk1", "systemctl enable --now cosched-agent"),
    _set("head", "cosched nodes", "ada", sees=(_UP.format("desk1"),), until=True),
    _set(HERE, "cp $KEY $HOSTS/head/root/root/.ssh/id_ed25519"),
    _set("head", "ssh-keyscan desk1 desk2 desk3 >>.ssh/known_hosts"),
    _of("operate", "head", "cosched node add desk1 --cluster office", put={"desk1": "desk2"}, bound_s=120),
    _set("head", "cosched nodes", "ada", sees=(_UP.format("desk2"),), until=True),
    _of("operate", "head", "cosched doctor"),
    _of("operate", "head", "cosched submit -n 5 --wait job.sh", "ada", put={"-n 5": "-n $((2 * $(nproc)))"}),
    _set("head", "cosched logs $(cosched history -n 1 | tail -n 1 | cut -f 1)", "ada", sees=("^desk1$", "^desk2$")),
)  # fmt: skip

#: desk3 over ssh and by hand, desk4 whose host key is not known.
_MORE_DESKS: Final = (
    _set("head", "cd office"),
    _of("operate", "head", "cosched node add desk3 desk4=192.0.2.14", status=1, bound_s=120),
    _set("head", "cosched nodes", sees=(_UP.format("desk3"),), until=True),
    _of("operate", "head", "cosched node remove desk3"),
    _set("head", "cd"),
    _set(
        "desk3",
        "cosched node render --name desk3 --cluster office --scheduler head.example --into /\n"
        "systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload\n"
        "cosched node request desk3 >desk3.csr",
    ),
    _set(HERE, "cp $HOSTS/desk3/root/root/desk3.csr $HOSTS/head/root/root/"),
    _set("head", "cosched node sign desk3 desk3.csr --cluster office >desk3.json"),
    _of("operate", "head", "cosched node admit desk3"),
    _set(HERE, "cp $HOSTS/head/root/root/desk3.json $HOSTS/desk3/root/root/"),
    _set("desk3", "cosched node accept desk3.json"),
    _of(
        "operate", "desk3", "/opt/cosched/bin/python3 -m node_agent.guard --config /etc/cosched/node.toml",
        put={"/opt": "setsid /opt", "node.toml": "node.toml >guard.log 2>&1 </dev/null &"},
    ),
    _of(
        "operate", "desk3", "/opt/cosched/bin/python3 -m node_agent --config …",
        put={
            "/opt": "setsid runuser -u cosched-agent -- /opt",
            "…": "/etc/cosched/node.toml >agent.log 2>&1 </dev/null &",
        },
    ),
    _set("head", "cosched nodes", sees=(_UP.format("desk3"),), until=True),
    _set("desk3", "pkill -f '[n]ode_agent --config'; pkill -f '[n]ode_agent.guard --config'; true"),
    _of("runbooks", "head", "cosched node remove NAME", put={"NAME": "desk3 --cluster office"}, bound_s=120),
)  # fmt: skip

_MINE: Final = "$(cosched desk status | sed -n 's/^ *job \\([0-9]*\\) of .*/\\1/p' | head -n 1)"

#: An ordinary user who decides about desk1 (``desk_users``), with a job there.
_DESK: Final = (
    _set("head", "cosched node drain desk2 --reason away"),
    _set("head", "cosched submit -n 1 long.sh", "ada"),
    _set("head", "cosched submit -n 1 long.sh", "ada"),
    _of(
        "desk", "desk1", "cosched desk status", "ada", shown=0, until=True,
        sees=(r"^parallel work:", r"^  job \d+ of ada: \d+ process"),
    ),
    *(
        _of("desk", "desk1", f"cosched desk {words}", "ada")
        for words in ("pause --for 2h", "resume", "pause")
    ),
    _set("desk1", "cosched desk resume", "ada"),
    _of("desk", "desk1", "cosched desk end 12", "ada", put={"12": _MINE}),
    _of("desk", "desk1", "cosched desk end all", "ada"),
    *(
        _of("desk", "desk1", f"cosched desk {words}", "ada", **more)
        for words, more in (
            ("share 0.25", {}),
            ("share contract", {}),
            ("hours 18:00-08:00 sat,sun", {}),
            ("hours always", {}),
            ("ban bob --for 7d", {}),
            ("ban --list", {"sees": ("bob",)}),
            ("allow bob", {}),
            ("probe off", {}),
            ("wake on", {}),
        )
    ),
    _set("desk1", "cosched desk probe on; cosched desk wake off", "ada"),
    _set("head", "cosched node resume desk2"),
)  # fmt: skip

_DAY: Final = (
    _of("operate", "head", "cosched nodes", "ada", shown=1),
    _of("operate", "head", 'cosched node drain desk1 --reason "new disk"'),
    _set("head", "cosched submit -n 1 --hold long.sh", "ada"),
    _of("operate", "head", "cosched set-aside", shown=2, sees=(r"^job\s+\d+\s+ada\s+held",)),
    _of("operate", "head", "cosched node resume desk1"),
    _of("operate", "head", "cosched policy set conservative"),
    _of("runbooks", "head", "cosched policy show", sees=("conservative",)),
    _of("runbooks", "head", "cosched policy set easy"),
    _of("runbooks", "head", "cosched queue"),
    _of("runbooks", "head", "cosched explain JOB", put={"JOB": "4"}),
    _of("runbooks", "head", "cosched release", put={"release": "release 4"}),
    _of("runbooks", "head", "cosched show JOB", put={"JOB": "4"}),
    _of("operate", "head", "cosched history", "ada"),
    _set("head", "cosched cancel 4", "ada"),
)  # fmt: skip

#: Tokens and certificates of users elsewhere: at desk2, by TLS.
_ELSEWHERE: Final = (
    _of("operate", "head", "cosched token create --life 30d --label laptop --into cosched-token", "ada"),
    _set(HERE, "mkdir -p $HOSTS/desk2/root/home/ada/.config"),
    _set(HERE, "cp -r $HOSTS/head/root/home/ada/cosched-token $HOSTS/desk2/root/home/ada/.config/cosched"),
    _set("desk2", "chown -R ada: ~ada/.config"),
    _of("operate", "desk2", "cosched queue --server https://head.example:7420", "ada"),
    _set("desk2", "chmod 644 ~/.config/cosched/token", "ada"),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada", status=2, sees=("chmod 600",)),
    _of("operate", "desk2", "chmod 600", "ada", put={"chmod 600": "chmod 600 ~/.config/cosched/token"}),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada"),
    _of("operate", "head", "cosched token list", "ada", sees=("laptop",)),
    _of(
        "operate", "head", "cosched token revoke 5f0c1d22e7", "ada",
        put={"5f0c1d22e7": "$(cosched token list | awk '/laptop/ {print $1}')"},
    ),
    _set("desk2", "rm -r ~/.config/cosched", "ada"),
    _set("desk2", "cosched identity request --kind user --into ~/.config/cosched ada >ada.csr", "ada"),
    _set(HERE, "cp $HOSTS/desk2/root/home/ada/ada.csr $HOSTS/head/root/root/"),
    _set("head", "cosched identity sign --authority office/authority --kind user ada <ada.csr >ada.json"),
    _set(HERE, "cp $HOSTS/head/root/root/ada.json $HOSTS/desk2/root/home/ada/"),
    _set("desk2", "cosched identity accept --kind user --into ~/.config/cosched ada.json", "ada"),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada"),
    _of("operate", "head", "cosched identity revoke user ada --authority office/authority"),
    _of("operate", "head", "cosched identity list", sees=("revoked",)),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada", status=1),
    _of(
        "runbooks", "head", "cosched node renew NAME --cluster DIR", put={"NAME": "desk2", "DIR": "office"},
        bound_s=120,
    ),
    _of(
        "installation", "desk2", "systemd-analyze security --offline=yes",
        put={"=yes": "=yes /etc/systemd/system/cosched-agent.service"}, sees=("Overall exposure level",),
    ),
    _of("installation", "desk4", "cosched identity create DIR --name office", "ada", put={"DIR": "authority"}),
    _of(
        "installation", "desk4", "cosched init --here", "ada",
        put={"--here": "--here --scheduler head.example --node desk1 small"},
    ),
)  # fmt: skip

_SIGN: Final = (
    "cosched identity sign --authority office/authority --address head.example scheduler <scheduler.csr >scheduler.json"
)
_RENEW: Final = "cosched node renew desk1 desk2 --cluster office"
_SCHEDULERS: Final = tuple(
    _of("keys", "head", line)
    for line in (
        "cosched identity request scheduler --into /etc/cosched/identity --again >scheduler.csr",
        _SIGN,
        "cosched identity accept --kind scheduler --into /etc/cosched/identity --account cosched-scheduler"
        " scheduler.json",
    )
)
_BOTH_UP: Final = _set("head", "cosched nodes", sees=(_UP.format("desk1"), _UP.format("desk2")), until=True)
#: What a step of another authority asks for: all renew.
_ALL_RENEWED: Final = (*_SCHEDULERS, _of("keys", "head", _RENEW, bound_s=120, shown=0), _BOTH_UP)
_OLDEST: Final = '$(awk \'$2 == "node" && $3 == "desk1" {print $1; exit}\' office/authority/issued)'

_KEYS: Final = (
    _of("keys", "head", "cosched identity list --authority office/authority", sees=("desk2",)),
    _of("keys", "head", "cosched doctor"),
    _of("keys", "head", _RENEW, bound_s=120),
    _of("keys", "desk1", "cosched node request desk1 --again >desk1.csr"),
    _set(HERE, "cp $HOSTS/desk1/root/root/desk1.csr $HOSTS/head/root/root/"),
    _of("keys", "head", "cosched node sign desk1 desk1.csr --cluster office >desk1.json"),
    _set(HERE, "cp $HOSTS/head/root/root/desk1.json $HOSTS/desk1/root/root/"),
    _of("keys", "desk1", "cosched node accept desk1.json"),
    *_SCHEDULERS,
    _of("keys", "desk2", "cosched identity request --kind user --into ~/.config/cosched --again ada >ada.csr", "ada"),
    _set(HERE, "cp $HOSTS/desk2/root/home/ada/ada.csr $HOSTS/head/root/root/"),
    _of("keys", "head", "cosched identity sign --authority office/authority --kind user ada <ada.csr >ada.json"),
    _set(HERE, "cp $HOSTS/head/root/root/ada.json $HOSTS/desk2/root/home/ada/"),
    _of("keys", "desk2", "cosched identity accept --kind user --into ~/.config/cosched ada.json", "ada"),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada", until=True),
    _of(
        "keys", "head", "cosched identity revoke user ada --authority office/authority", shown=0,
        sees=("^user ada: revoked ",),
    ),
    _set("desk2", "cosched queue --server https://head.example:7420", "ada", status=1),
    _of("keys", "head", "cosched identity revoke node desk1 --serial 41d2…", put={"41d2…": _OLDEST}),
    _of("keys", "head", "cosched identity revoke node desk1 --serial …", put={"…": _OLDEST}),
    _of("keys", "head", "cosched node add --again desk1", put={"desk1": "desk1 --cluster office"}, bound_s=120),
    _BOTH_UP,
    _of("keys", "head", "cosched identity rotate office/authority --begin"),
    *_ALL_RENEWED,
    _of("keys", "head", "cosched identity rotate office/authority --switch"),
    *_ALL_RENEWED,
    _of("keys", "head", "cosched identity rotate office/authority --finish"),
    *_ALL_RENEWED,
    _of(
        "keys", "head",
        "mkdir -m 700 /etc/cosched/next && cosched identity request scheduler --into /etc/cosched/next >scheduler.csr",
    ),
    _of("keys", "head", _SIGN),
    _of("keys", "head", _RENEW, bound_s=120, shown=0),
    _of("keys", "head", "cosched identity accept --kind scheduler --into /etc/cosched/next scheduler.json"),
    _of("keys", "head", "cp -a --no-preserve=ownership /etc/cosched/next/* /etc/cosched/identity/"),
    _of("keys", "head", "chown cosched-scheduler: /etc/cosched/identity/*.key && rm -r /etc/cosched/next"),
    _of("keys", "head", "cosched identity rotate office/authority --finish"),
    _of("keys", "head", _RENEW, bound_s=120, shown=0),
    _BOTH_UP,
    _set("head", "cosched submit -n $((2 * $(nproc))) --wait job.sh", "ada", bound_s=120),
)  # fmt: skip

_RUNBOOKS: Final = (
    _of("runbooks", "head", "systemctl status cosched-scheduler", sees=(r"Active: active \(running\)",)),
    _of("runbooks", "head", "journalctl -u cosched-scheduler -n 50", sees=("msg|level",)),
    _set("head", "systemctl stop cosched-scheduler"),
    _of("runbooks", "head", "cosched scheduler --config /etc/cosched/cluster.yaml --check"),
    _of("runbooks", "head", "systemctl start cosched-scheduler"),
    _of("runbooks", "head", "cosched token create --read-only", put={"only": "only --into mon"}),
    _set(HERE, "cp $HOSTS/head/root/root/mon/* ."),
    _of(
        "runbooks", OVER_THERE,
        'curl --cacert ca.pem -H "Authorization: Bearer $(cat token)" --connect-to scheduler:7420:HOST:7420'
        " https://scheduler:7420/metrics",
        put={"HOST": "10.88.0.11"}, sees=("^cosched_",),
    ),
    _of("runbooks", "head", "systemctl restart cosched-scheduler"),
    _of("runbooks", "head", "df -i", put={"-i": "-i /var/lib/cosched"}),
    _of("runbooks", "desk1", "journalctl -u cosched-agent -n 50"),
    _of("runbooks", "desk1", "systemctl restart cosched-agent"),
    _of("runbooks", "head", "cosched node drain NAME --reason …", put={"NAME": "desk2", "…": "away"}),
    _set("head", "cosched node resume desk2"),
    _of("runbooks", "desk1", "journalctl -u cosched-guard -n 50"),
    _of("runbooks", "desk1", "systemctl status cosched-guard", sees=(r"Active: active \(running\)",)),
    _of("runbooks", "desk1", "systemctl restart cosched-guard"),
    _set("head", "cosched nodes", sees=(_UP.format("desk1"), _UP.format("desk2")), until=True),
    _of("runbooks", "head", "cosched show ID", put={"ID": "1"}),
    _of("runbooks", "desk1", "cat /proc/PID/stack", put={"PID": "$$"}),
    _of("runbooks", "desk1", "dmesg | tail"),
    _set("desk1", "mkdir -p there; mount -t tmpfs there there"),
    _of("runbooks", "desk1", "mount | grep MOUNTPOINT", put={"MOUNTPOINT": "$PWD/there"}),
    _of("runbooks", "desk1", "umount -f MOUNTPOINT", put={"MOUNTPOINT": "$PWD/there"}),
    _of("runbooks", HERE, "cosched monitoring render", put={"cosched": "./run cosched", "render": "render --into mon"}),
)  # fmt: skip

_JOURNAL: Final = (
    _set("head", "mkdir -m 777 -p /backup"),
    _of("operate", "head", "cosched scheduler --backup /backup/2026-11-27"),
    _set("head", "systemctl stop cosched-scheduler"),
    _of("operate", "head", "cosched scheduler --restore /backup/2026-11-27/journal.db"),
    _of("runbooks", "head", "cosched scheduler --restore FILE", put={"FILE": "/backup/2026-11-27/journal.db"}),
    _of(
        "operate", "head", "runuser -u cosched-scheduler -- cosched scheduler --take-over",
        put={"runuser": "timeout -s INT 30 runuser"}, sees=("^ready",), status=124,
    ),
    _of("operate", "head", "cosched scheduler --forget ada"),
    _set("head", "systemctl start cosched-scheduler"),
    _set("head", "cosched nodes", sees=(_UP.format("desk1"), _UP.format("desk2")), until=True),
    _set(HERE, "rm -rf state; cp -r $HOSTS/head/root/var/lib/cosched/scheduler state"),
    _of("operate", HERE, "cosched replay STATE", put={"cosched": "./run cosched", "STATE": "state"}),
    _set("head", "systemctl stop cosched-scheduler"),
    _of(
        "operate", "head", "cosched scheduler --record FILE", status=124,
        put={"cosched scheduler": "timeout -s INT 30 runuser -u cosched-scheduler -- cosched scheduler",
             "FILE": "/var/lib/cosched/night.record"},
    ),
    _set(HERE, "cp $HOSTS/head/root/var/lib/cosched/night.record ."),
    _of("operate", HERE, "cosched replay --inputs FILE", put={"cosched": "./run cosched", "FILE": "night.record"}),
    _set("head", "systemctl start cosched-scheduler"),
)  # fmt: skip

#: By hand: desk1 as a node that could not be reached, the scheduler after its nodes.
_REMOVAL: Final = (
    _set("head", "cosched node remove desk2 --cluster office", bound_s=120),
    _of(
        "installation", "desk2", "rm -r /var/lib/cosched /etc/cosched /run/cosched",
        put={"rm": "userdel cosched-agent && rm"},
    ),
    _set("head", "sed -i /^desk1/d .ssh/known_hosts"),
    _set("head", "cosched node remove desk1 --cluster office", bound_s=120, sees=("not tidied",)),
    *(
        _of("installation", "desk1", line)
        for line in (
            "cosched desk end all",
            "systemctl disable --now cosched-agent cosched-guard",
            "rm -f /etc/systemd/system/cosched-{agent,guard,jobs}.service /etc/systemd/system/cosched.slice"
            " /etc/{sysusers,tmpfiles}.d/cosched-node.conf",
            "rm -f /etc/profile.d/cosched.sh /etc/xdg/autostart/cosched-desk.desktop"
            " /usr/local/share/applications/cosched-desk.desktop",
            "systemctl daemon-reload",
            "userdel cosched-agent",
            "rm -r /etc/cosched /var/lib/cosched /run/cosched",
        )
    ),
    *(
        _of("installation", "head", line)
        for line in (
            "systemctl disable --now cosched-scheduler",
            "rm /etc/systemd/system/cosched-scheduler.service /etc/sysusers.d/cosched-scheduler.conf"
            " /etc/tmpfiles.d/cosched-scheduler.conf",
            "systemctl daemon-reload",
            "userdel cosched-scheduler",
            "rm -r /etc/cosched /var/lib/cosched /run/cosched",
        )
    ),
    *(_set(name, "userdel cosched-agent; rm -rf /{var/lib,etc,run}/cosched; true") for name in ("desk3", "desk4")),
    *(_set(name, "rm -r /opt/cosched /usr/local/bin/cosched") for name in ("head", *DESKS)),
    *(_set(name, "! find /etc /run /var/lib -name '*cosched*' | grep .") for name in ("head", *DESKS)),
)  # fmt: skip

#: What an administrator's editor does to the example of an inventory.
_EDITOR: Final = """\
cat >~/editor <<'END'
#!/bin/sh -e
sed -i 's/192[.]0[.]2[.]13/10.88.0.14/;s/192[.]0[.]2[.]12/10.88.0.13/;s/192[.]0[.]2[.]11/10.88.0.12/' "$1"
sed -i 's/192[.]0[.]2[.]10/10.88.0.11/' "$1" "$2"
sed -i 's/192[.]0[.]2[.]0/10.88.0.0/;s/^cosched_users:.*/cosched_users: [ada]/' "$2"
echo "ansible_ssh_common_args: -F $HOME/ssh.conf" >>"$2"
END
chmod +x ~/editor; export EDITOR=~/editor"""
_SSH: Final = "".join(
    f"Host {name} 10.88.0.{at}\\n HostName 10.88.0.{at}\\n" for at, name in enumerate(("head", *DESKS), 11)
)


def _play(page: str, line: str, **more: Any) -> Act:
    name = line.partition(" ")[0]
    return _of(page, OVER_THERE, line, put={name: f"ansible-playbook playbooks/{name}"}, bound_s=900, **more)


_ANSIBLE: Final = (
    _set(HERE, "cd ~/cosched"),
    _of("ansible", HERE, "python3 -m venv ~/ansible && ~/ansible/bin/pip install ansible-core", bound_s=600),
    _set(HERE, "export PATH=~/ansible/bin:$PATH"),
    _set(
        HERE,
        f"printf '{_SSH}' >~/ssh.conf; printf 'Host *\\n IdentityFile %s\\n UserKnownHostsFile %s\\n' $KEY $KNOWN_HOSTS"
        " >>~/ssh.conf",
    ),
    _of("ansible", OVER_THERE, "ssh root@desk1", put={"ssh": "ssh -F ~/ssh.conf", "desk1": "desk1 true"}),
    _of("ansible", HERE, "cp -r ansible/examples/inventory ~/office"),
    _of("ansible", HERE, "./run wheelhouse ~/office/wheels --extra scheduler,local-load", bound_s=600),
    _set(HERE, _EDITOR),
    _of("ansible", HERE, "$EDITOR ~/office/hosts.yml ~/office/group_vars/all.yml"),
    _of("ansible", HERE, "cd ansible"),
    _of("ansible", OVER_THERE, "ansible-playbook -i ~/office playbooks/preflight.yml", bound_s=600),
    _of("ansible", OVER_THERE, "ansible-playbook -i ~/office playbooks/site.yml", bound_s=1200),
    _of("ansible", HERE, "export ANSIBLE_INVENTORY=~/office"),
    _of("ansible", "head", "cosched submit -n 6 --wait job.sh", "ada"),
    _set(HERE, "sed -i 's/^\\( *\\)desk3:/\\1desk4: {ansible_host: 10.88.0.15}\\n&/' ~/office/hosts.yml"),
    _play("ansible", "add_node.yml -e cosched_new=desk4"),
    _play("ansible", "drain.yml --limit desk2 -e node_agent_drain_wait_s=3600"),
    _set("head", "cosched nodes", "ada", sees=(r"^desk2\s+drained", _UP.format("desk4"))),
    _set(OVER_THERE, "ansible-playbook playbooks/drain.yml --limit desk2 -e node_agent_drain_resume=true", bound_s=600),
    _set(
        HERE,
        "git clone -q $SOURCE ~/newer; cd ~/newer\n"
        "sed -i 's/^__version__.*/__version__ = \"9.9.9\"/' cosched/__init__.py",
    ),
    _of("ansible", HERE, "./run wheelhouse ~/office/wheels-NEW --extra scheduler,local-load", bound_s=900),
    _set(HERE, "sed -i 's,inventory_dir }}/wheels,&-NEW,' ~/office/group_vars/all.yml; cd ansible"),
    _play("ansible", "upgrade.yml"),
    _set("desk2", "cosched --version", sees=("9.9.9",)),
    _play("ansible", "rollback.yml --limit desk2"),
    _play("ansible", "rollback.yml -e scheduler_restore=true"),
    _set("head", "cosched --version", sees=(r"0\.",)),
    _set("head", "cosched nodes", "ada", sees=tuple(map(_UP.format, DESKS)), until=True),
    _play("ansible", "remove.yml --limit desk3 -e cosched_remove=true"),
    _play("ansible", "remove.yml -e cosched_remove=true"),
)  # fmt: skip

_README: Final = (
    _set(HERE, f"cd ~/cosched; printf '{JOB}' >job.sh; export COSCHED_LAB=guides"),
    _of("readme", HERE, "./run help"),
    _of("readme", HERE, "./run demo --short", bound_s=300, sees=("The lab is gone again",)),
    _of("readme", HERE, "./run demo", bound_s=400, shown=1, sees=("The lab is gone again",)),
    _of("readme", HERE, "./run cosched lab up --nodes 4", put={"--nodes 4": "--nodes 4 --name guides"}, bound_s=120),
    _of("readme", HERE, "./run cosched submit -n 4 --wait job.sh", bound_s=120),
    _of("readme", HERE, "./run cosched queue"),
    _of("readme", HERE, "./run cosched explain 1"),
    _of(
        "readme", HERE, "./run cosched page", put={"./run": "timeout -s INT 20 ./run"}, status=124,
        sees=("http://127",),
    ),
    _of("readme", HERE, "./run cosched lab down"),
    _set(HERE, "./run cosched workload generate lublin03 mylog.swf.gz --jobs 500 --force"),
    _of("readme", HERE, "./run cosched compare mylog.swf.gz --policies easy,conservative,sjbf", bound_s=300),
    *(
        _of("readme", HERE, f"./run cosched replicate {paper} --quick", bound_s=400)
        for paper in ("bfm", "cisne", "adaptive", "coallocation")
    ),
    _of("readme", HERE, "./run docs", bound_s=400),
)  # fmt: skip

PARTS: Final[Mapping[str, tuple[Act, ...]]] = {
    "packages": _PACKAGES,
    "cluster": _CLUSTER,
    "desks": _DESKS,
    "more desks": _MORE_DESKS,
    "desk": _DESK,
    "day by day": _DAY,
    "elsewhere": _ELSEWHERE,
    "keys": _KEYS,
    "runbooks": _RUNBOOKS,
    "journal": _JOURNAL,
    "removal": _REMOVAL,
    "ansible": _ANSIBLE,
    "readme": _README,
}

#: What is not typed, by the reason.
LEFT: Final[Mapping[str, tuple[str, ...]]] = {
    "takes the whole of the tests: CI runs them for each commit": ("readme: ./run test", "readme: ./run test --whole"),
    "a campaign of its own, on hosts of its own": ("ansible: ./run campaign ansible",),
    "takes a second host for the scheduler: the campaign ansible moves it there and back": (
        "ansible: move_scheduler.yml -e cosched_from=head",
    ),
    "takes the public logs of KTH and NASA, which no checkout has": ("readme: ./run cosched replicate backfilling",),
    "takes control groups of version 2 on a host, and the campaign's hosts have this machine's": (
        "installation: systemctl stop cosched-jobs cosched.slice",
        "runbooks: systemctl stop cosched-jobs",
    ),
    "takes a desktop session with its bus, which the campaign's hosts do not have": ("desk: cosched desk session",),
    "takes a journal of an older format: tests/service/test_kept_journals.py puts such back": (
        "operate: cosched scheduler --restore /var/lib/cosched/scheduler/journal.db.formatN.TIME",
    ),
    "lays out Debian's Prometheus and Grafana: ./run campaign monitoring-hosts plays it": ("keys: monitoring.yml",),
    "takes Debian's package sysstat, which an installation does not have": ("runbooks: iostat -x 1",),
    "names the program of a synthetic user, which a desk's unit runs": ("runbooks: cosched local-load",),
}
