/* requests_test.c - the socket of a running job: whoever is at the other end, nothing waits and nothing is harmed. */
#define _GNU_SOURCE
#include "../../host/job/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char         folder[64], path[96];
static gm_requests *job;

static void begin(void)
{
    strcpy(folder, "/tmp/gm-requests-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/requests", folder);
    assert_int_equal(gm_requests_open(path, &job), GM_OK);
}

static void end(void)
{
    gm_requests_close(job);
    assert_int_not_equal(access(path, F_OK), 0); /* the socket goes with it */
    assert_int_equal(rmdir(folder), 0);
}

static int attach(void)
{
    int fd;
    assert_int_equal(gm_request_connect(path, &fd), GM_OK);
    return fd;
}

static char answer[GM_REQUEST_ANSWER + 1];

static const char *heard(int fd)
{
    long n = gm_request_receive(fd, answer, GM_REQUEST_ANSWER, 0.2);
    if (n < 0) return "nothing";
    answer[n] = 0;
    return answer;
}

/* Takes the request that waits -> its text, which must be there. */
static const char *taken(int *id)
{
    const char *text;
    size_t      n;
    assert_true(gm_requests_take(job, id, &text, &n));
    assert_int_equal(n, strlen(text));
    return text;
}

void gm_test_requests_in_order(void **state)
{
    (void)state;
    int         id, second, one, two;
    const char *text;
    size_t      n;
    begin();
    assert_int_equal(gm_requests_look(job), 0);
    one = attach();
    two = attach();
    assert_true(gm_request_send(two, "second asks", 11));
    assert_int_equal(gm_requests_look(job), 1);
    assert_true(gm_request_send(one, "first asks", 10));
    assert_true(gm_request_send(two, "and again", 9)); /* waits in the socket until the first is answered */
    assert_int_equal(gm_requests_look(job), 2);
    assert_string_equal(taken(&id), "second asks");
    assert_string_equal(taken(&second), "first asks");
    assert_false(gm_requests_take(job, &id, &text, &n));
    assert_true(gm_requests_answer(job, second, "yes", 3));
    assert_false(gm_requests_answer(job, second, "twice", 5));
    assert_false(gm_requests_answer(job, 77, "nobody", 6));
    assert_string_equal(heard(one), "yes");
    assert_true(gm_requests_answer(job, id, "no", 2));
    assert_string_equal(heard(two), "no");
    assert_int_equal(gm_requests_look(job), 1);
    assert_string_equal(taken(&id), "and again");
    close(one);
    close(two);
    end();
}

void gm_test_requests_bounds(void **state)
{
    (void)state;
    static char long_text[GM_REQUEST_ROOM + 1];
    int         id, fd[GM_REQUEST_PEERS], late;
    const char *text;
    size_t      n;
    begin();
    memset(long_text, 'x', sizeof long_text);
    for (int i = 0; i < GM_REQUEST_PEERS; i++) fd[i] = attach();
    late = attach();
    for (int i = 0; i < 3; i++) gm_requests_look(job);
    assert_non_null(strstr(heard(late), "refused")); /* one too many: told, and closed */
    assert_string_equal(heard(late), "");
    assert_true(gm_request_send(fd[0], long_text, sizeof long_text));     /* too long */
    assert_true(gm_request_send(fd[1], long_text, sizeof long_text - 1)); /* as long as may be */
    assert_int_equal(gm_requests_look(job), 1);
    assert_non_null(strstr(heard(fd[0]), "16384"));
    assert_string_equal(heard(fd[0]), "");
    taken(&id);
    assert_true(gm_requests_answer(job, id, "ok", 2));
    assert_string_equal(heard(fd[1]), "ok");
    assert_true(gm_request_send(fd[2], "leaves", 6));
    assert_int_equal(gm_requests_look(job), 1);
    close(fd[2]); /* before its turn: its request is handed out to nobody */
    assert_false(gm_requests_take(job, &id, &text, &n));
    assert_true(gm_request_send(fd[3], "leaves", 6));
    gm_requests_look(job);
    taken(&id);
    close(fd[3]); /* while it is served */
    assert_false(gm_requests_answer(job, id, "nobody hears", 12));
    close(late);
    late = attach(); /* there is room again */
    assert_true(gm_request_send(late, "me", 2));
    assert_int_equal(gm_requests_look(job), 1);
    close(late);
    for (int i = 0; i < GM_REQUEST_PEERS; i++)
        if (i != 2 && i != 3) close(fd[i]);
    end();
}

/* A peer that asks and never reads: its answers fill the socket; then it is closed, and nothing has waited. */
void gm_test_requests_deaf_peer(void **state)
{
    (void)state;
    static char long_answer[2 * GM_REQUEST_ANSWER];
    int         id, fd, answered = 0;
    const char *text;
    size_t      n;
    begin();
    memset(long_answer, 'y', sizeof long_answer);
    fd = attach();
    for (int i = 0; i < 50; i++) {
        gm_request_send(fd, "more", 4);
        gm_requests_look(job);
        if (!gm_requests_take(job, &id, &text, &n)) break;
        answered += gm_requests_answer(job, id, long_answer, sizeof long_answer);
    }
    assert_in_range(answered, 1, 20);
    assert_int_equal(gm_request_receive(fd, answer, sizeof answer, 0.2), GM_REQUEST_ANSWER); /* cut, not lost */
    close(fd);
    end();
}

/* Another user who gets as far as the socket is closed without a word, and so is a stream of bytes. */
void gm_test_requests_strangers(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int                stream = socket(AF_UNIX, SOCK_STREAM, 0), status = 0;
    begin();
    strcpy(address.sun_path, path);
    assert_int_not_equal(connect(stream, (struct sockaddr *)&address, sizeof address), 0);
    close(stream);
    if (geteuid() == 0) {
        chmod(folder, 0755);
        chmod(path, 0666);
        pid_t child = fork();
        if (child == 0) {
            int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
            if (setresuid(65534, 65534, 65534) || connect(fd, (struct sockaddr *)&address, sizeof address)) _exit(1);
            send(fd, "let me in", 9, MSG_NOSIGNAL);
            _exit(recv(fd, address.sun_path, 4, 0) <= 0 ? 0 : 2); /* closed: nothing, or a reset */
        }
        for (int i = 0; i < 1000 && !waitpid(child, &status, WNOHANG); i++) {
            assert_int_equal(gm_requests_look(job), 0);
            usleep(5000);
        }
        assert_int_equal(status, 0);
    }
    end();
}
