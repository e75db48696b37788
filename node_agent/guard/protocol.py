"""What agent and guard say to each other, over a Unix socket of packets (SOCK_SEQPACKET), one JSON object a packet.

The guard accepts one connection at a time, from the user that its configuration names (peer credentials). A request has
``do``, ``re`` (a number of the caller's) and the fields below; its answer has the same ``re`` and ``ok`` (true, with
results) or ``error`` (a code of ``wire.messages.Refused``) and ``message``. Events have ``event`` and come unasked.
Descriptors travel beside the packet (SCM_RIGHTS). At end of file, the guard arms the contract and keeps what runs.
Answers come when they are there, not in the order of the requests; what happens while no agent listens is in ``list``.

requests (their types and ranges: ``guard.requests``, ``guard.fields``)
    contract  {cpu_ratio, memory_ratio, mpl}            the cluster's contract; the owner's own maximum still cuts it
    relax     {until_us, epoch}                         no CPU ceiling until then (CLOCK_BOOTTIME, microseconds);
              answers {until_us}, at most 120 s from now; an epoch below the highest seen is refused, and a past moment
    arm       {}                                        the ceiling holds from now on
    tighten   {ratio, until_us}                         while armed, only this share of the ceiling until then (at most
              120 s from now); a later request replaces it
    prepare   {job, attempt, user, directory, tasks, memory_bytes, limit_us, grace_us, umask, uid}   cgroup, private
              directories; answers {problems: [what could not be limited, and why], uid: whose its processes are};
              refused (user) where the user has another uid here than ``uid``, but with ``users = "by-name"``
    spawn     {job, attempt, n, argv, env, cwd, script, output, error, stream}  + descriptors: stdin, stdout, stderr
              n = 0 is the job script, whose text is in a fourth descriptor (a file or memfd) when ``script`` is true:
              it is copied into the job's directory and takes argv[0]'s place. ``output`` and ``error``: paths opened
              as the user, or null. ``stream`` (32 hexadecimal digits, or null): no descriptors come along; the
              supervisor keeps the streams, for whom the agent connects to ``state/jobs/JOB.ATTEMPT/STREAM``
              (``guard.streams``), and a second command of that name is refused (busy). Answers {pid} when the command
              has been executed, or why it could not be. One that has not been within 12 s is refused (unrun), and never
              is; the same request for one that is on its way is answered with it. The time limit counts from then on
    resize    {job, attempt, n, tasks, cpus}            another share of the node: memory by its tasks, and so many CPUs
              for its processes, those there are and those to come (null: any). By a controller cpuset where there is
              one, else by the affinity of every thread, looked after. It outlasts agent and guard. ``n`` below that of
              the last one obeyed is refused (stale), that one again is answered by what it gave. Answers {cpus: [their
              numbers]}, none where any may be used
    signal    {job, attempt, n, signal}                 to that command's process group; answers {sent: processes}
    kill      {job, attempt, grace_us}                  SIGTERM to all, grace, SIGKILL until the cgroup is empty;
              ``empty`` follows, also where nothing was left; nothing can be spawned any more
    forget    {job, attempt}                            remove cgroup, private directories, records; refused while alive
    weigh     {job, attempt, percent, until_us}         its weight against the other jobs (100: as all are made), until
              then, at most 10 s from now; answers {until_us}
    slots     {begin_us, slot_us, rows: [[[job, attempt]]], until_us}   from begin_us on (CLOCK_BOOTTIME), slot after
              slot, the jobs of row n % rows run and those of other rows only where nobody else would, until then, at
              most 10 s from now; jobs in no row are left alone, no rows end it; answers {until_us}
              Both are undone: when they expire, when the agent goes, when the guard ends or starts
    whose     {pid}                                     answers {job, attempt} whose cgroup a process is in
    accounts  {users: {name: its uid on the scheduler's host, or null}}   64 at most; answers {users: {name: [uid, gid,
              home, problem]}}, without names that are unknown here. Refused (failed) where the user database or a home
              does not answer within 3 s, and (busy) while one that was given up so still waits for it
    keys      {}                                        from now on, until the agent goes, ``keys`` tells of terminals
    list      {}                                        answers {groups: [{job, attempt, user, uid, state, ending,
              deadline_us, cpu_us, memory_peak_bytes, cpus, commands: [{n, state, pid, status, signal, cause}]}]}
              state: preparing, prepared, running, empty (nothing runs, more may come), ending, ended
              a command's state: starting, running, ended (the last three fields, only then)
    status    {}                                        answers {armed, until_us, epoch, contract, limits: {cpus, idle,
              memory_bytes, problems}, can: {capability: yes | why not}, levers: [[job, attempt, percent, idle]] of
              jobs that are not as they were made, raises: how often jobs were given more weight, levers_problem,
              paused: why nothing may run here, or "", paused_until_us: null where no end is set,
              closed: whether it is for the hour alone, by the owner's hours,
              pauses: how many have begun since the guard started, contract_cpus: the ceiling of the contract,
              probe: {wakeups: {counts, late_us} of ``cosched.linux.wakeups``, or null, problem},
              inhibited_until_us: until then somebody at the desk watches something and touches nothing,
              wake: [[from_us, until_us]]: when the owner lets the machine be woken for jobs in the coming days (64
              at most); null: never,
              word: what the desk's owner has said: {cpu_ratio: a share below the contract's, or null, bans: users whose
              jobs are refused (owner), ended: [[job, attempt]] that the owner has ended, not yet forgotten}}
events
    exited    {job, attempt, n, status | signal, cause}  a command has ended (cause as in wire.messages.Exit)
    empty     {job, attempt, cpu_us, memory_peak_bytes}  no process is left in the job's cgroup: after commands have
              ended (each time, where more are spawned later), and after ``kill``
    stalled   {job, attempt, user, procs, memory_bytes, since_us, processes: [{pid, command, channel, path, mount,
              device, own}]}   four at most of the processes that are left five seconds after they were killed at
              ``since_us``, and what each waits for (``cosched.linux.stalls``); ``own``: on a file system that guard and
              agent write to; again every five seconds, until ``empty``
    armed     {why}                                      the guard has armed by itself
    keys      {terminals: [their device numbers]}        somebody has typed there; five times a second at most
    desk      {paused, paused_until_us, closed, inhibited_until_us, word, wake}   somebody there has said something
"""

from typing import Final

MAX_PACKET_BYTES: Final = 192 << 10
#: Bounds of ``weigh`` and ``slots``.
MAX_PERCENT: Final = 10_000
MAX_ROWS: Final = 16
MAX_SUBMITTERS: Final = 64
MIN_SLOT_US: Final = 5_000
MAX_SLOT_US: Final = 10_000_000
SOCKET_NAME: Final = "guard.sock"
