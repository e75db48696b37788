# Hosts on one machine, for tests of launchers: `unshare --pid --mount --fork --kill-child --mount-proc sh hosts.sh DIR COUNT`.
#
# This shell is process 1 of a pid namespace of its own: when it ends, everything of the lab ends with it, and the other
# namespaces go with their last process. Each host has its network, name, IPC, DIR/tmp and /dev/shm; no name server answers.
# Left in DIR: the hosts' process numbers, as seen in here (pid.1 …), and `ready`.
set -e
dir=$1 count=$2
ip link set lo up 2>/dev/null || true
i=1
while [ "$i" -le "$count" ]; do
    unshare --net --uts --ipc --mount sh -c '
        hostname "node$1"
        mount -t tmpfs tmpfs /dev/shm
        mount --bind "$2/resolv.conf" /etc/resolv.conf
        mount -t tmpfs tmpfs "$2/tmp"
        ip link set lo up
        echo $$ >"$2/pid.$1.new" && mv "$2/pid.$1.new" "$2/pid.$1"
        exec sleep infinity' host "$i" "$dir" &
    while [ ! -s "$dir/pid.$i" ]; do sleep 0.01; done
    i=$((i + 1))
done
# the bridge lives in a namespace of its own
unshare --net sh -c '
    ip link add br0 type bridge
    ip link set br0 up
    i=1
    while [ "$i" -le "$2" ]; do
        ip link add "port$i" type veth peer name eth0 netns "$(cat "$1/pid.$i")"
        ip link set "port$i" master br0 up
        i=$((i + 1))
    done
    touch "$1/bridged"
    exec sleep infinity' bridge "$dir" "$count" &
while [ ! -e "$dir/bridged" ]; do sleep 0.01; done
i=1
while [ "$i" -le "$count" ]; do
    nsenter --target "$(cat "$dir/pid.$i")" --net sh -c "ip address add 10.77.0.$i/24 dev eth0 && ip link set eth0 up"
    i=$((i + 1))
done
touch "$dir/ready"
wait
