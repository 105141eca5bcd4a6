/* Between a program and its C library: fails, kills or records the calls that touch files under one folder.

   Loaded by LD_PRELOAD. A program arms it by the functions at the end, or from outside by the variables
   FAULT_UNDER (part of the path), FAULT_CALL, FAULT_WHEN (from 1), FAULT_HOW (error, always, before, after, torn), FAULT_ERRNO. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOTHING, ERROR, ALWAYS, BEFORE, AFTER, TORN };
static const char *HOWS[] = {"", "error", "always", "before", "after", "torn"};
static char under[512], wanted[32];
static int when, how, number, seen, record = -1, busy;

static void from_outside(void) __attribute__((constructor));
void fault_arm(const char *folder, const char *call, int at, int way, int error) {
    snprintf(under, sizeof under, "%s", folder);
    snprintf(wanted, sizeof wanted, "%s", call);
    when = at; how = way; number = error; seen = 0;
}
void fault_record(const char *path) {
    record = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
}
int fault_seen(void) { return seen; }
static void from_outside(void) {
    const char *folder = getenv("FAULT_UNDER"), *call = getenv("FAULT_CALL"), *at = getenv("FAULT_WHEN"), *way = getenv("FAULT_HOW"),
               *error = getenv("FAULT_ERRNO");
    int k = 0;
    if (!folder || !call || !at || !way) return;
    for (int i = 1; i <= TORN; i++) if (!strcmp(way, HOWS[i])) k = i;
    fault_arm(folder, call, atoi(at), k, error ? atoi(error) : 0);
}

static const char *path_of(int file) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}
static const char *absolute(const char *name) {
    static __thread char path[4096];
    if (name[0] == '/') return name;
    if (syscall(SYS_getcwd, path, sizeof path / 2) < 0) path[0] = 0;
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/%s", name);
    return path;
}
static int concerns(const char *path) { return under[0] && strstr(path, under) != NULL; }
static void die(void) { syscall(SYS_kill, syscall(SYS_getpid), SIGKILL); for (;;) pause(); }

/* Before a call: 1, it fails now; 2, die after it; 3, do half of it and die; 0, nothing. */
static int fate(const char *call, const char *path) {
    if (busy || !concerns(path)) return 0;
    if (wanted[0] != '*' && strcmp(wanted, call)) return 0;
    seen++;
    if (how == ALWAYS && seen >= when) { errno = number; return 1; }
    if (seen != when) return 0;
    if (how == ERROR) { errno = number; return 1; }
    if (how == BEFORE) die();
    return how == AFTER ? 2 : how == TORN ? 3 : 0;
}
static void put(const void *data, size_t length) { while (length) { ssize_t n = syscall(SYS_write, record, data, length); if (n <= 0) return; data = (const char *)data + n; length -= n; } }
static void note(const char *call, unsigned long inode, const char *a, const char *b, long at, long flags, const void *data, size_t length) {
    if (record < 0 || busy || !concerns(a)) return;
    int error = errno;
    char head[9000];
    int n = snprintf(head, sizeof head, "%s\t%lu\t%s\t%s\t%ld\t%ld\t%zu\n", call, inode, a, b, at, flags, length);
    put(head, n);
    if (length) put(data, length);
    errno = error;
}
static unsigned long inode_of(int file) { struct stat s; return syscall(SYS_fstat, file, &s) ? 0 : s.st_ino; }

#define REAL(name) ({ static __typeof__(&name) f; if (!f) f = (__typeof__(&name))dlsym(RTLD_NEXT, #name); f; })

#define BY_NAME(result, name, call, parameters, arguments, path, remember)                                   \
    result name parameters {                                                                                 \
        const char *whole = absolute(path); int f = fate(call, whole);                                       \
        if (f == 1) return -1;                                                                               \
        result r = REAL(name) arguments;                                                                     \
        if (f) die();                                                                                        \
        if (r >= 0) { remember; }                                                                            \
        return r;                                                                                            \
    }
#define BY_NUMBER(result, name, call, parameters, arguments, file, remember)                                 \
    result name parameters {                                                                                 \
        const char *whole = path_of(file); int f = fate(call, whole);                                        \
        if (f == 1) return -1;                                                                               \
        result r = REAL(name) arguments;                                                                     \
        if (f) die();                                                                                        \
        if (r >= 0) { remember; }                                                                            \
        return r;                                                                                            \
    }
#define OPENING(name)                                                                                        \
    int name(const char *p, int flags, ...) {                                                                \
        va_list more; va_start(more, flags); mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0; va_end(more); \
        const char *whole = absolute(p); int f = fate("open", whole);                                        \
        if (f == 1) return -1;                                                                               \
        int r = REAL(name)(p, flags, mode);                                                                  \
        if (f) die();                                                                                        \
        if (r >= 0) note("open", inode_of(r), whole, "", 0, flags, NULL, 0);                                 \
        return r;                                                                                            \
    }
OPENING(open)
OPENING(open64)
BY_NUMBER(ssize_t, read, "read", (int d, void *b, size_t n), (d, b, n), d, (void)0)
BY_NUMBER(ssize_t, pread64, "read", (int d, void *b, size_t n, off64_t o), (d, b, n, o), d, (void)0)
ssize_t write(int d, const void *b, size_t n) {
    const char *whole = d > 2 ? path_of(d) : ""; int f = fate("write", whole);
    if (f == 1) return -1;
    off_t at = record >= 0 ? lseek(d, 0, SEEK_CUR) : 0;
    ssize_t r = REAL(write)(d, b, f == 3 ? n / 2 : n);
    if (f) die();
    if (r > 0) note("write", inode_of(d), whole, "", at, 0, b, r);
    return r;
}
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) {
    const char *whole = path_of(d); int f = fate("write", whole);
    if (f == 1) return -1;
    ssize_t r = REAL(pwrite64)(d, b, f == 3 ? n / 2 : n, o);
    if (f) die();
    if (r > 0) note("write", inode_of(d), whole, "", o, 0, b, r);
    return r;
}
BY_NUMBER(int, fsync, "fsync", (int d), (d), d, note("fsync", inode_of(d), whole, "", 0, 0, NULL, 0))
BY_NUMBER(int, flock, "flock", (int d, int o), (d, o), d, (void)0)
BY_NUMBER(int, ftruncate, "ftruncate", (int d, off_t n), (d, n), d, note("ftruncate", inode_of(d), whole, "", n, 0, NULL, 0))
BY_NUMBER(int, ftruncate64, "ftruncate", (int d, off64_t n), (d, n), d, note("ftruncate", inode_of(d), whole, "", n, 0, NULL, 0))
BY_NUMBER(int, fstat, "fstat", (int d, struct stat *s), (d, s), d, (void)0)
BY_NUMBER(int, fstat64, "fstat", (int d, struct stat64 *s), (d, s), d, (void)0)
BY_NAME(int, stat, "stat", (const char *p, struct stat *s), (p, s), p, (void)0)
BY_NAME(int, stat64, "stat", (const char *p, struct stat64 *s), (p, s), p, (void)0)
BY_NAME(int, unlink, "unlink", (const char *p), (p), p, note("unlink", 0, whole, "", 0, 0, NULL, 0))
BY_NAME(int, rmdir, "rmdir", (const char *p), (p), p, note("rmdir", 0, whole, "", 0, 0, NULL, 0))
BY_NAME(int, mkdir, "mkdir", (const char *p, mode_t m), (p, m), p, note("mkdir", 0, whole, "", 0, 0, NULL, 0))
int posix_fallocate64(int d, off64_t o, off64_t n) {
    int f = fate("fallocate", path_of(d));
    if (f == 1) return number;
    int r = REAL(posix_fallocate64)(d, o, n);
    if (f) die();
    if (!r) note("ftruncate", inode_of(d), path_of(d), "", o + n, 0, NULL, 0);
    return r;
}
int posix_fallocate(int d, off_t o, off_t n) { return posix_fallocate64(d, o, n); }
#define TWO_NAMES(name)                                                                                      \
    int name(const char *p, const char *q) {                                                                 \
        char first[4096]; snprintf(first, sizeof first, "%s", absolute(p));                                  \
        int f = fate(#name, first);                                                                          \
        if (f == 1) return -1;                                                                               \
        int r = REAL(name)(p, q);                                                                            \
        if (f) die();                                                                                        \
        if (!r) note(#name, 0, first, absolute(q), 0, 0, NULL, 0);                                           \
        return r;                                                                                            \
    }
TWO_NAMES(rename)
TWO_NAMES(link)
DIR *opendir(const char *p) {
    int f = fate("opendir", absolute(p));
    if (f == 1) return NULL;
    DIR *r = REAL(opendir)(p);
    if (f) die();
    return r;
}
