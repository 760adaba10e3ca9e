/* module.h - the border between the program and ganymede_cuda.so: one function and two tables.
 *
 * The module is opened when a device is asked for (find.c). So a program that needs no GPU starts without the libraries
 * of CUDA, and a program that was built with them also runs on machines without them. Both tables begin with size and
 * version, so that a module of another build is refused and never misread. */
#ifndef GM_CUDA_MODULE_H
#define GM_CUDA_MODULE_H

#include "../../device.h"

#define GM_CUDA_MODULE  "ganymede_cuda.so" /* beside the executable */
#define GM_CUDA_OPEN    "gm_cuda_open"
#define GM_CUDA_VERSION 5

/* The functions of the program that the module may call. */
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
    /* GM_OK: a device can be opened. Otherwise the message says what is missing. */
    gm_status (*probe)(void);
    /* Writes at most n facts about driver, devices and libraries, and returns how many. Never fails. */
    int (*facts)(gm_device_fact *out, int n);
} gm_cuda_api;

/* Fills *out and returns 0. If sizes or versions differ, it writes only the module's size and version, and returns 1.
 */
typedef int (*gm_cuda_open_function)(const gm_host_api *host, gm_cuda_api *out);

#endif
