#!/bin/sh
# compile.sh IMAGE SOURCE NVCC OPTIONS... - SOURCE to the fat binary IMAGE and its list of files IMAGE.d, by nvcc or
# from a cache: the same text of all files that go in, options and compiler have given the same binary before.
#
# Kernels whose largest blocks would have more registers than there are make it fail (registers.awk).
#
# The cache is $GANYMEDE_CACHE/kernels, else ganymede/kernels in $XDG_CACHE_HOME or ~/.cache; without any of them nvcc
# compiles. It holds DIRECT.d, the files that went in when these options last compiled that source, and IMAGE by the
# digest of their texts. What cannot be kept is no error. Files are written beside and renamed: builds may share it.
set -eu
image=$1 source=$2 nvcc=$3
shift 3

cache=${GANYMEDE_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/ganymede}}
cache=${cache:-${HOME:+$HOME/.cache/ganymede}}
here=${0%/*} # files are named from there: the tree may lie anywhere

compile() {
    status=0
    "$nvcc" "$@" -Xptxas=-v -MD -MF "$image.d" -MT "$image" -o "$image" "$source" >"$image.log" 2>&1 || status=$?
    awk -f "$here/registers.awk" "$image.log" >&2 || status=1
    if [ "$status" != 0 ]; then
        rm -f -- "$image"
        exit "$status"
    fi
}
if [ -z "$cache" ] || ! mkdir -p -- "$cache/kernels" 2>/dev/null || [ ! -w "$cache/kernels" ]; then
    compile "$@"
    exit
fi
cache=$cache/kernels

digest() { sha256sum | cut -c 1-40; }
direct=$({ "$nvcc" --version && printf '%s\n' "${source##*/}" "$@" && cat "$here/registers.awk"; } | digest)

# The files of a list that make reads, one a line; the digest of their names and texts, or nothing when one is gone.
files_of() { sed -e 's/^.*: //' -e 's/\\$//' "$1" | tr -s ' ' '\n' | sed -e '/^$/d' -e "s,^@/,$here/,"; }
texts_of() {
    texts=$(files_of "$1" | tr '\n' '\0' | xargs -0 sha256sum 2>/dev/null) || return 0
    { printf '%s\n' "${direct##*/}" "$texts"; } | sed "s, $here/, @/," | digest
}
direct=$cache/$direct

if [ -e "$direct.d" ]; then
    found=$(texts_of "$direct.d")
    if [ -n "$found" ] && [ -e "$cache/$found.fatbin" ] && cp -f -- "$cache/$found.fatbin" "$image" 2>/dev/null; then
        { printf '%s: ' "$image" && files_of "$direct.d" | tr '\n' ' ' && echo; } >"$image.d"
        touch -- "$cache/$found.fatbin" # what is old by its time may be removed
        exit 0
    fi
fi
compile "$@"
found=$(texts_of "$image.d")
keep() { cp -f -- "$1" "$2.$$" 2>/dev/null && mv -f -- "$2.$$" "$2" 2>/dev/null || rm -f -- "$2.$$"; }
if [ -n "$found" ]; then
    keep "$image" "$cache/$found.fatbin"
    files_of "$image.d" | sed "s,^$here/,@/," | tr '\n' ' ' >"$direct.d.$$" && mv -f -- "$direct.d.$$" "$direct.d"
fi
