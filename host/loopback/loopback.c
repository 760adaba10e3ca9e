/* loopback.c - loaded into mpirun (LD_PRELOAD, lua/ganymede/job/launcher.lua): what it listens on is this
 * machine's alone.
 *
 * Open MPI 4.1 always listens on all addresses, over IPv4 and IPv6, for the daemons of other machines, and no parameter
 * of its own changes that (oob_tcp_if_include only chooses the address that it tells). A job that `-n` starts has none.
 * The trap: mpirun hands its environment to the ranks, so it takes itself out of LD_PRELOAD again. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Ours is the first entry. A script called mpirun, which starts the real one, is a shell and passes it on. */
__attribute__((constructor)) static void leave_environment(void)
{
    static const char *const names[] = {"mpirun", "orterun"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *list = getenv("LD_PRELOAD"), *rest = list ? strchr(list, ':') : NULL;
        if (strcmp(program_invocation_short_name, names[i]) != 0) continue;
        if (rest) setenv("LD_PRELOAD", rest + 1, 1);
        else unsetenv("LD_PRELOAD");
    }
}

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    int (*real)(int, const struct sockaddr *,
                socklen_t) = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
    struct sockaddr_in  v4;
    struct sockaddr_in6 v6;
    if (address->sa_family == AF_INET && size >= sizeof v4) {
        memcpy(&v4, address, sizeof v4);
        if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return real(fd, (struct sockaddr *)&v4, sizeof v4);
    }
    if (address->sa_family == AF_INET6 && size >= sizeof v6) {
        memcpy(&v6, address, sizeof v6);
        if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) v6.sin6_addr = in6addr_loopback;
        return real(fd, (struct sockaddr *)&v6, sizeof v6);
    }
    return real(fd, address, size);
}
