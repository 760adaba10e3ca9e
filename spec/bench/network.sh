#!/bin/sh
# network.sh - a bench over a network of limited speed, as between machines: the ranks talk TCP through a loopback of
# their own (a network namespace) that a token bucket slows down. There the cores have nothing to do while bytes travel.
# Through shared memory moving bytes is work of the very same cores.
#
#     spec/bench/network.sh 4gbit build/ganymede run spec/bench/overlap.lua -n 2 --threads 1 [--set bucket_mb=2 ...]
#     spec/bench/network.sh 100mbit build/ganymede run spec/bench/plan/regret.lua --set ranks=2 --set of=gpt
#
# All ranks share the bucket, which holds what passes in a millisecond or two: a larger one lets messages of some
# hundred KiB pass at any rate after a pause, and a smaller one is slower than its rate. Needs the right to make a
# namespace (root), ip and tc (Debian package iproute2).
rate=${1:?a rate, such as 4gbit}
shift
: "${1:?a command}"
case $rate in
1gbit) burst=64kb ;;
*gbit) burst=256kb ;;
*) burst=16kb ;;
esac
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
exec unshare -n sh -c '
    ip link set lo mtu 9000 up && tc qdisc add dev lo root tbf rate "$1" burst "$2" latency 100ms || exit 1
    shift 2
    exec "$@"' sh "$rate" "$burst" "$@"
