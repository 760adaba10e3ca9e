#!/bin/sh
# overlap_network.sh - overlap.lua over a network of limited speed, as between machines: the ranks talk TCP through a
# loopback of their own (a network namespace) that a token bucket slows down. There the cores have nothing to do while
# bytes travel, so overlap can hide them; through shared memory moving bytes is work of the very same cores.
#
#     spec/bench/overlap_network.sh 4gbit build/ganymede [--set bucket_mb=2 ...]
#
# Needs the right to make a namespace (root), ip and tc (Debian package iproute2).
rate=${1:?a rate, such as 4gbit} program=${2:?the ganymede to run}
shift 2
here=$(dirname -- "$0")
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
exec unshare -n sh -c '
    ip link set lo up && tc qdisc add dev lo root tbf rate "$1" burst 256kb latency 100ms || exit 1
    shift
    exec "$@"' sh "$rate" "$program" run "$here/overlap.lua" -n 2 --threads 1 "$@"
