"""What agent and guard say to each other, over a Unix socket of packets (SOCK_SEQPACKET), one JSON object a packet.

The guard accepts one connection at a time, from the user that its configuration names (peer credentials). A request has
``do``, ``re`` (a number of the caller's) and the fields below; its answer has the same ``re`` and ``ok`` (true, with
results) or ``error`` (a code of ``wire.messages.Refused``) and ``message``. Events have ``event`` and come unasked.
Descriptors travel beside the packet (SCM_RIGHTS). At end of file, the guard arms the contract and keeps what runs.

requests
    contract  {cpu_ratio, memory_ratio, mpl}            the cluster's contract; the owner's own maximum still cuts it
    relax     {until_us, epoch}                         no CPU ceiling until then (CLOCK_BOOTTIME, microseconds)
    arm       {}                                        the ceiling holds from now on
    prepare   {job, attempt, user, directory, tasks, memory_bytes, limit_us, grace_us}   cgroup, private directories
    spawn     {job, attempt, n, argv, env, cwd, script, output, error}  + descriptors: stdin, stdout, stderr
              n = 0 is the job script, whose text is in a fourth descriptor when ``script`` is true: it is copied into the
              job's directory and takes argv[0]'s place. ``output`` and ``error``: paths opened as the user, or null.
              Answers {pid}.
    signal    {job, attempt, n, signal}                 to that command's process group
    kill      {job, attempt, grace_us}                  SIGTERM to all, grace, SIGKILL until the cgroup is empty
    forget    {job, attempt}                            remove cgroup, private directories, records; refused while alive
    list      {}                                        answers {groups: [{job, attempt, user, state, commands, …}]}
    status    {}                                        answers {armed, until_us, limits, can: {capability: yes | why not}}
events
    exited    {job, attempt, n, status | signal, cause}  a command has ended (cause as in wire.messages.Exit)
    empty     {job, attempt, cpu_us, memory_peak_bytes}  no process is left in the job's cgroup, after its first command
    armed     {why}                                      the guard has armed by itself
"""

from typing import Final

MAX_PACKET_BYTES: Final = 192 << 10
SOCKET_NAME: Final = "guard.sock"
