#!/bin/sh
# network.sh - a bench over a network of limited speed, as between machines: the ranks talk TCP through a loopback of
# their own (a network namespace) that a token bucket slows down. There the cores have nothing to do while bytes travel.
# Through shared memory moving bytes is work of the very same cores.
#
#     spec/bench/network.sh 4gbit build/ganymede run spec/bench/overlap.lua -n 2 --threads 1 [--set bucket_mb=2 ...]
#     spec/bench/network.sh 100mbit build/ganymede run spec/bench/plan/regret.lua --set ranks=2 --set of=gpt
#
# All ranks share the bucket. Needs the right to make a namespace (root), ip and tc (Debian package iproute2).
rate=${1:?a rate, such as 4gbit}
shift
: "${1:?a command}"
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
exec unshare -n sh -c '
    ip link set lo up && tc qdisc add dev lo root tbf rate "$1" burst 256kb latency 100ms || exit 1
    shift
    exec "$@"' sh "$rate" "$@"
