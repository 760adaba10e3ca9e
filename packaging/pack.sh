#!/bin/sh
# pack.sh BUILD OUT [--cuda FOLDER] [--bench] - a folder OUT that runs on a machine without Debian's packages: the
# built tree with LuaJIT, Open MPI and its plugins, and all other shared libraries that they need, stripped.
#
#     packaging/pack.sh build /tmp/ganymede-packed
#     tar -C /tmp -czf ganymede.tar.gz ganymede-packed      then, there:  ganymede-packed/ganymede run ...
#
# What is not packed: glibc (the machine's must be as new as this one's: OUT/README says which), the NVIDIA driver, data
# sets, compilers. --cuda FOLDER packs cuBLASLt, cuDNN, NCCL and NVRTC from that folder, some gigabytes, for machines
# that have a driver only. --bench packs the specs and busted too, for spec/bench/gpu/run.sh on a machine with a GPU.
# The packed folder may be moved; for several machines it must be at the same place on each.
set -eu

die() { printf 'pack.sh: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

[ $# -ge 2 ] || usage
build=$1 out=$2 cuda='' bench=
shift 2
while [ $# -gt 0 ]; do
    case $1 in
    --cuda) [ $# -ge 2 ] || usage; cuda=$2; shift 2 ;;
    --bench) bench=1; shift ;;
    *) usage ;;
    esac
done
top=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
[ -x "$build/ganymede" ] || die "there is no $build/ganymede; build it first (./ganymede help does)"
[ ! -e "$out" ] || die "$out is there already; name a new folder"
[ -z "$cuda" ] || ! grep -qxs none "$build/cuda-architectures" ||
    die "$build has no kernels for GPUs; build them first: cmake --preset cuda && cmake --build --preset cuda"
[ -z "$cuda" ] || [ -d "$cuda" ] || die "there is no folder $cuda"

mkdir -p "$out/build" "$out/lib"
out=$(CDPATH='' cd -- "$out" && pwd -P)

# ---- the tree

cp -- "$build/ganymede" "$build/ganymede.modules" "$out/build/"
for module in "$build"/ganymede_*.so; do
    [ ! -e "$module" ] || cp -- "$module" "$out/build/"
done
cp -R -- "$top/lua" "$top/recipes" "$top/LICENSE" "$out/"
mkdir -p "$out/include"
cp -- "$top/host/data/transform_kernel.h" "$out/include/" # for transforms in C
cp -R -- "$top/docs" "$top/README.md" "$top/CHANGELOG.md" "$out/" # what `docs` shows

argparse=
for folder in /usr/share/lua/5.1 /usr/local/share/lua/5.1; do
    [ ! -e "$folder/argparse.lua" ] || argparse=$folder/argparse.lua
done
[ -n "$argparse" ] || die "argparse.lua is in neither of Lua's usual folders; install lua-argparse"
cp -- "$argparse" "$out/lua/"

# ---- specs: busted, with all that it loads

# The file or folder of that name in one of the folders that follow.
find_in() {
    name=$1
    shift
    for folder in "$@"; do
        [ ! -e "$folder/$name" ] || { printf '%s\n' "$folder/$name"; return 0; }
    done
    die "$name is in none of Lua's usual folders; install lua-busted"
}

pack_specs() {
    mkdir -p "$out/kernels" "$out/lua-modules"
    cp -R -- "$top/spec" "$out/"
    rm -rf "$out/spec/mutants" "$out/spec/unit"
    cp -- "$top"/kernels/*.def "$out/kernels/"
    for module in busted.lua busted luassert say term system mediator.lua cliargs.lua cliargs pl; do
        cp -RL -- "$(find_in "$module" /usr/share/lua/5.1 /usr/local/share/lua/5.1)" "$out/lua/"
    done
    for module in lfs.so system term; do
        cp -RL -- "$(find_in "$module" /usr/lib/*/lua/5.1 /usr/lib/lua/5.1 /usr/local/lib/lua/5.1)" "$out/lua-modules/"
    done
}
[ -z "$bench" ] || pack_specs

# ---- Open MPI: its programs, its plugins, PMIx's plugins, the texts of its errors

ask() { ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p"; }

pack_mpi() {
    command -v ompi_info >/dev/null 2>&1 || die "there is ganymede_mpi.so, but no ompi_info; install openmpi-bin"
    mkdir -p "$out/mpi/bin" "$out/mpi/plugins" "$out/mpi/share" "$out/mpi/pmix/lib" "$out/mpi/etc"
    cp -L -- "$(command -v mpirun)" "$out/mpi/bin/mpirun"
    cp -L -- "$(command -v orted)" "$out/mpi/bin/orted"
    cp -- "$(ask pkglibdir)"/mca_*.so "$out/mpi/plugins/"
    cp -R -- "$(ask pkgdatadir)/." "$out/mpi/share/"
    # libpmix is loaded by a plugin; its own plugins are beside it.
    pmix=$(ldd "$out"/mpi/plugins/mca_pmix_*.so | awk '/libpmix\.so/ { print $3; exit }')
    [ -n "$pmix" ] || return 0
    pmix=$(dirname -- "$(readlink -f -- "$pmix")")
    [ ! -d "$pmix/pmix" ] || cp -R -- "$pmix/pmix" "$out/mpi/pmix/lib/"
}
[ ! -e "$out/build/ganymede_mpi.so" ] || pack_mpi

# ---- what all of these need, but glibc

find "$out/build" "$out/mpi" "$out/lua-modules" -type f \
    \( -name '*.so' -o -path '*/bin/*' -o -name ganymede \) 2>/dev/null |
    while read -r file; do ldd "$file" 2>/dev/null || :; done >"$out/needed"
awk '/=> not found/ { print $1 }' "$out/needed" | sort -u >"$out/absent"
awk '/=> \// { print $3 }' "$out/needed" | sort -u | while read -r library; do
    case ${library##*/} in
    ld-linux* | libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | libutil.so.* | \
        libanl.so.* | libnsl.so.* | libnss_* | libcuda.so.*) ;;
    *) cp -L -- "$library" "$out/lib/" ;;
    esac
done
while read -r name; do
    printf 'pack.sh: %s is needed by a plugin and is not here either\n' "$name" >&2
done <"$out/absent"
rm -f "$out/needed" "$out/absent"

# What debuggers read. The kernels for GPUs are data of their module, and stay.
find "$out" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' -o -path "$out/build/ganymede" \) \
    -exec strip --strip-unneeded {} + || die 'strip failed; install binutils'

if [ -n "$cuda" ]; then
    for name in libcublasLt libcublas libcudnn libnccl libnvrtc; do
        for library in "$cuda/$name"*.so.*; do
            [ ! -e "$library" ] || cp -P -- "$library" "$out/lib/"
        done
    done
fi

# ---- how it is started

cat >"$out/ganymede" <<'START'
#!/bin/sh
# Starts the packed Ganymede with what was packed beside it, from wherever this folder is.
link=$0
while [ -h "$link" ]; do
    target=$(readlink -- "$link")
    case $target in /*) link=$target ;; *) link=${link%/*}/$target ;; esac
done
case $link in */*) top=$(CDPATH='' cd -- "${link%/*}" && pwd -P) ;; *) top=$(pwd -P) ;; esac
export GANYMEDE_ROOT="$top" LD_LIBRARY_PATH="$top/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ ! -d "$top/lua-modules" ] || export LUA_CPATH="$top/lua-modules/?.so;${LUA_CPATH:-;}"
if [ -d "$top/mpi" ]; then
    export PATH="$top/mpi/bin:$PATH" OPAL_PREFIX="$top/mpi" OPAL_BINDIR="$top/mpi/bin" OPAL_LIBDIR="$top/lib" \
        OPAL_PKGLIBDIR="$top/mpi/plugins" OPAL_PKGDATADIR="$top/mpi/share" OPAL_SYSCONFDIR="$top/mpi/etc" \
        PMIX_INSTALL_PREFIX="$top/mpi/pmix"
    # Without a way to start ranks elsewhere mpirun gives up, unless told that it shall stay on this machine.
    command -v ssh >/dev/null || command -v rsh >/dev/null || command -v srun >/dev/null ||
        export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
fi
exec "$top/build/ganymede" "$@"
START
chmod +x "$out/ganymede"

# ---- the man page, completion of shells

mkdir -p "$out/share/man/man1" "$out/share/bash-completion/completions" "$out/share/zsh/site-functions"
"$out/ganymede" docs --man "$out/share/man/man1/ganymede.1"
"$out/ganymede" docs --completion bash >"$out/share/bash-completion/completions/ganymede"
"$out/ganymede" docs --completion zsh >"$out/share/zsh/site-functions/_ganymede"

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'the C library of the machine it was packed on')
cat >"$out/README" <<ABOUT
Ganymede, packed with the libraries it needs: ./ganymede help

./ganymede docs writes the documentation as HTML. share/ has a man page (man -l share/man/man1/ganymede.1) and what
completes words in bash (. share/bash-completion/completions/ganymede) and zsh (share/zsh/site-functions in \$fpath).

Needs Linux on $(uname -m) with $glibc or newer, and sh; for --device cuda an NVIDIA driver for CUDA 13 and cuBLASLt and
cuDNN 9, which are in lib/ if it was packed with --cuda. Several ranks on one machine need nothing more; on several
machines the folder must be at the same place on each. What was packed keeps its own licences.
ABOUT
[ -z "$bench" ] || cat >>"$out/README" <<'ABOUT'

On a machine with a GPU: sh spec/bench/gpu/run.sh --out DIR. The script's first lines say what it does.
ABOUT
printf 'packed into %s: %s\n' "$out" "$(du -sh "$out" | cut -f1)"
