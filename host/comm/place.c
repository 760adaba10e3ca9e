/* place.c - see place.h. */
#include "place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

socklen_t gm_place_length(const gm_place *p) { return p->any.sa_family == AF_INET6 ? sizeof p->v6 : sizeof p->v4; }

static const void *number_of(const gm_place *p)
{
    return p->any.sa_family == AF_INET6 ? (const void *)&p->v6.sin6_addr : (const void *)&p->v4.sin_addr;
}

bool gm_place_is_loopback(const gm_place *p)
{
    if (p->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&p->v6.sin6_addr);
    return ntohl(p->v4.sin_addr.s_addr) >> 24 == 127;
}

void gm_place_set_port(gm_place *p, int port)
{
    if (p->any.sa_family == AF_INET6) p->v6.sin6_port = htons((uint16_t)port);
    else p->v4.sin_port = htons((uint16_t)port);
}

const char *gm_place_show(const gm_place *p, char *text, size_t n)
{
    char number[INET6_ADDRSTRLEN] = "";
    inet_ntop(p->any.sa_family, number_of(p), number, sizeof number);
    snprintf(text, n, "%s", number);
    return text;
}

static bool same_number(const gm_place *a, const gm_place *b)
{
    if (a->any.sa_family != b->any.sa_family) return false;
    return !memcmp(number_of(a), number_of(b), a->any.sa_family == AF_INET6 ? 16 : 4);
}

void gm_place_copy(gm_place *to, const struct sockaddr *from)
{
    memset(to, 0, sizeof *to);
    memcpy(to, from, from->sa_family == AF_INET6 ? sizeof to->v6 : sizeof to->v4);
}

/* The address of an interface, of a family if it has one of it. */
gm_status gm_place_of_interface(const char *interface, int family, gm_place *out)
{
    struct ifaddrs *list, *found = NULL;
    char            names[300] = "";
    if (getifaddrs(&list)) return GM_FAIL(GM_ECOMM, "cannot list the interfaces: %s", strerror(errno));
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        int f = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if ((f != AF_INET && f != AF_INET6) || !(i->ifa_flags & IFF_UP)) continue;
        if (f == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr)) continue;
        size_t n = strlen(names);
        if (!strstr(names, i->ifa_name)) snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", i->ifa_name);
        if (!strcmp(i->ifa_name, interface) && (!found || (f == family && found->ifa_addr->sa_family != family)))
            found = i;
    }
    if (found) gm_place_copy(out, found->ifa_addr);
    freeifaddrs(list);
    if (found) return GM_OK;
    return GM_FAIL(GM_EINVAL, "there is no interface %s with an address here; there are: %s", interface, names);
}

void gm_place_interface(const gm_place *p, char *out, size_t n)
{
    struct ifaddrs *list;
    char            number[INET6_ADDRSTRLEN];
    const char     *name = "?";
    if (getifaddrs(&list)) list = NULL;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        gm_place here;
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
        gm_place_copy(&here, i->ifa_addr);
        if (same_number(&here, p)) name = i->ifa_name;
    }
    if (gm_place_is_loopback(p)) name = "lo";
    snprintf(out, n, "%s (%s)", name, gm_place_show(p, number, sizeof number));
    if (list) freeifaddrs(list);
}

int gm_place_port(const gm_place *p) { return ntohs(p->any.sa_family == AF_INET6 ? p->v6.sin6_port : p->v4.sin_port); }
