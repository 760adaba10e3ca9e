/* place.h - addresses of sockets, and the interfaces of this machine that have them. */
#ifndef GM_PLACE_H
#define GM_PLACE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include "../../kernels/status.h"

typedef union gm_place {
    struct sockaddr         any;
    struct sockaddr_in      v4;
    struct sockaddr_in6     v6;
    struct sockaddr_storage room;
} gm_place;

void      gm_place_copy(gm_place *to, const struct sockaddr *from);
socklen_t gm_place_length(const gm_place *p);
bool      gm_place_is_loopback(const gm_place *p);
void      gm_place_set_port(gm_place *p, int port);
int       gm_place_port(const gm_place *p);
/* The address in digits, in text, which has room for INET6_ADDRSTRLEN. */
const char *gm_place_show(const gm_place *p, char *text, size_t n);
/* "eth0 (10.0.0.1)"; "?" where no interface here has the address. */
void gm_place_interface(const gm_place *p, char *out, size_t n);
/* The address of an interface, of this family (AF_INET, AF_INET6) if it has one. GM_EINVAL: there is no such interface;
 * the message lists those that there are. */
gm_status gm_place_of_interface(const char *interface, int family, gm_place *out);

#endif
