/* module.h - the border between the program and ganymede_cuda.so: one function and two tables.
 *
 * The module is opened when a device is asked for (find.c), so that a program that needs no GPU starts without CUDA's
 * libraries, and one built where they are runs where they are not. Both tables begin with size and version: a module
 * of another build is refused, never misread. */
#ifndef GM_CUDA_MODULE_H
#define GM_CUDA_MODULE_H

#include "../../device.h"

#define GM_CUDA_MODULE  "ganymede_cuda.so" /* beside the executable */
#define GM_CUDA_OPEN    "gm_cuda_open"
#define GM_CUDA_VERSION 4

/* What the module may call. */
typedef struct gm_host_api {
    size_t size;
    int    version;
    gm_status (*fail)(gm_status s, const char *file, int line, const char *text);
#define GM_HOST(result, name, parameters, arguments) result(*name) parameters;
#include "host_api.def"
#undef GM_HOST
} gm_host_api;

/* What the module offers. */
typedef struct gm_cuda_api {
    size_t            size;
    int               version;
    const gm_backend *backend;
    /* GM_OK when a device can be opened; else what is missing, as the message. */
    gm_status (*probe)(void);
    /* Writes at most n facts, returns how many: driver, devices, libraries. Never fails. */
    int (*facts)(gm_device_fact *out, int n);
} gm_cuda_api;

/* 0, or 1 where sizes or versions differ: out is then filled with the module's size and version, and nothing else. */
typedef int (*gm_cuda_open_function)(const gm_host_api *host, gm_cuda_api *out);

#endif
