"""What Windows lacks of what Python has on Linux: modules, and names in modules.

From the conditions on ``sys.platform`` in typeshed. Imports nothing: a program's start reads it.
"""

from __future__ import annotations

_MODULES = """
_posixshmem _posixsubprocess fcntl grp nis ossaudiodev posix pty pwd readline resource spwd syslog
termios tty
"""
MODULES = frozenset(_MODULES.split())

_OS = """
CLD_EXITED CLD_KILLED EX_OK F_LOCK F_TEST F_TLOCK F_ULOCK MFD_ALLOW_SEALING MFD_CLOEXEC
O_ACCMODE O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_FSYNC O_LARGEFILE O_NDELAY O_NOATIME
O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC O_TMPFILE POSIX_FADV_DONTNEED
POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED PRIO_PROCESS P_ALL
P_PGID P_PID P_PIDFD RTLD_GLOBAL RTLD_LAZY RTLD_LOCAL RTLD_NOW SCHED_BATCH SCHED_FIFO SCHED_IDLE
SCHED_OTHER SCHED_RR SEEK_DATA SEEK_HOLE WCONTINUED WCOREDUMP WEXITED WEXITSTATUS WIFCONTINUED
WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WNOWAIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED chown chroot
confstr copy_file_range ctermid environb eventfd eventfd_read eventfd_write fchdir fchmod fchown
fdatasync fork forkpty fpathconf fstatvfs fwalk getegid getenvb geteuid getgid getgrouplist
getgroups getloadavg getpgid getpgrp getpriority getrandom getresgid getresuid getsid getuid
getxattr initgroups killpg lchown listxattr lockf login_tty major makedev memfd_create minor mkfifo
mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp
pread preadv pwrite pwritev readv register_at_fork removexattr sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler sched_param
sched_rr_get_interval sched_setaffinity sched_setparam sched_setscheduler sched_yield sendfile
set_blocking setegid seteuid setgid setgroups setns setpgid setpgrp setpriority setregid setresgid
setresuid setreuid setsid setuid setxattr spawnlp spawnvp splice statvfs sync sysconf
sysconf_names tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
"""

_SIGNAL = """
ITIMER_PROF ITIMER_REAL ITIMER_VIRTUAL SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGHUP SIGIO SIGIOT
SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMIN SIGSTKFLT SIGSTOP SIGSYS SIGTRAP
SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIG_BLOCK
SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pidfd_send_signal pthread_kill pthread_sigmask
setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
"""

_SELECT = """
EPOLLERR EPOLLET EPOLLHUP EPOLLIN EPOLLOUT EPOLLPRI EPOLL_CLOEXEC PIPE_BUF POLLERR POLLHUP POLLIN
POLLNVAL POLLOUT POLLPRI devpoll epoll kevent kqueue poll
"""

_SOCKET = """
AF_NETLINK AF_PACKET AF_UNIX CMSG_LEN CMSG_SPACE MSG_CMSG_CLOEXEC MSG_DONTWAIT MSG_NOSIGNAL
SCM_CREDENTIALS SCM_RIGHTS SOCK_CLOEXEC SOCK_NONBLOCK SO_PASSCRED SO_PEERCRED SO_REUSEPORT
recv_fds send_fds sethostname
"""

_MMAP = """
MADV_DODUMP MADV_DOFORK MADV_DONTDUMP MADV_DONTFORK MADV_DONTNEED MADV_FREE MADV_HUGEPAGE
MADV_MERGEABLE MADV_NOHUGEPAGE MADV_NORMAL MADV_RANDOM MADV_REMOVE MADV_SEQUENTIAL MADV_WILLNEED
MAP_ANON MAP_ANONYMOUS MAP_DENYWRITE MAP_EXECUTABLE MAP_NORESERVE MAP_POPULATE MAP_PRIVATE
MAP_SHARED MAP_STACK PROT_EXEC PROT_READ PROT_WRITE
"""

_TIME = """
CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME
CLOCK_THREAD_CPUTIME_ID clock_getres clock_gettime clock_gettime_ns clock_settime
clock_settime_ns pthread_getcpuclockid tzset
"""

NAMES: dict[str, frozenset[str]] = {
    "os": frozenset(_OS.split()),
    "signal": frozenset(_SIGNAL.split()),
    "select": frozenset(_SELECT.split()),
    "socket": frozenset(_SOCKET.split()),
    "mmap": frozenset(_MMAP.split()),
    "time": frozenset(_TIME.split()),
    "faulthandler": frozenset({"register", "unregister"}),
    "multiprocessing.reduction": frozenset({"ACKNOWLEDGE", "DupFd", "recvfds", "sendfds"}),
    "multiprocessing": frozenset({"forkserver", "popen_fork", "popen_forkserver"}),
}
"""By module: what is not there. (`os.set_blocking` is, from Python 3.12.)"""

FILES = ("/proc", "/sys", "/dev/shm", "/etc/machine-id", "/var/lib/dbus")
"""Where Linux tells of itself: not there either."""
