package nodelock

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Holder describes an agent that can hold the locks of a node to other agents on this node.
type Holder struct {
	// ID is different in each run of an agent.
	ID           string    `json:"id"`
	PID          int       `json:"pid"`
	PIDNamespace string    `json:"pidNamespace,omitempty"` // the PID namespace of PID
	Host         string    `json:"host,omitempty"`         // the host name; in a container, the container's host name
	Attach       string    `json:"attach,omitempty"`       // the agent's kind of connection to the runtime, such as nri
	Config       string    `json:"config,omitempty"`       // the agent's configuration file
	Version      string    `json:"version,omitempty"`
	Started      time.Time `json:"started,omitzero"`
}

// Self describes this process.
func Self(attach, config, version string) Holder {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	pids, _ := os.Readlink("/proc/self/ns/pid")
	host, _ := os.Hostname()
	return Holder{
		ID: hex.EncodeToString(id), PID: os.Getpid(), PIDNamespace: pids, Host: host,
		Attach: attach, Config: config, Version: version, Started: time.Now().UTC().Truncate(time.Second), // for users
	}
}

// String describes the agent for users.
func (h Holder) String() string {
	var b strings.Builder
	here, _ := os.Readlink("/proc/self/ns/pid")
	switch {
	case h.PID == 0:
		b.WriteString("an unknown process")
	case h.PIDNamespace == "" || h.PIDNamespace == here:
		fmt.Fprintf(&b, "process %d", h.PID)
	default:
		fmt.Fprintf(&b, "process %d of another PID namespace", h.PID)
	}
	for _, part := range [][2]string{{" on host ", h.Host}, {", attach: ", h.Attach}, {", configuration ", h.Config}, {", version ", h.Version}} {
		if part[1] != "" {
			b.WriteString(part[0] + part[1])
		}
	}
	if !h.Started.IsZero() {
		b.WriteString(", started " + h.Started.Format(time.RFC3339))
	}
	return b.String()
}

// noticeNames are the extended attributes that may have a notice. A notice is the Holder of the agent that has locked
// the directory, as JSON. The second attribute is for file systems that do not support the first attribute: tmpfs
// before Linux 6.6, cgroup before 5.7. The second attribute needs CAP_SYS_ADMIN.
var noticeNames = []string{"user.trimtab.agent", "trusted.trimtab.agent"}

// maxNotice limits a notice's text, in bytes.
const maxNotice = 2048

// writeNotice writes a notice to a locked directory. If the file system supports neither attribute, other agents see
// only that a process has the lock.
func writeNotice(dir *os.File, h Holder) {
	h.Config, h.Version, h.Host = shorten(h.Config), shorten(h.Version), shorten(h.Host)
	text, err := json.Marshal(h)
	if err != nil || len(text) > maxNotice {
		return
	}
	for i, name := range noticeNames {
		if unix.Fsetxattr(int(dir.Fd()), name, text, 0) == nil {
			for _, old := range noticeNames[i+1:] {
				_ = unix.Fremovexattr(int(dir.Fd()), old)
			}
			return
		}
	}
}

// shorten limits the length of one text of a notice.
func shorten(s string) string { return s[:min(len(s), 256)] }

// removeNotice removes this agent's notice from a directory.
func removeNotice(dir *os.File) {
	for _, name := range noticeNames {
		_ = unix.Fremovexattr(int(dir.Fd()), name)
	}
}

// holderOf describes the process that has locked a directory. If the directory has no notice, the description has only
// the process id.
func holderOf(dir *os.File) Holder {
	text := make([]byte, maxNotice)
	var h Holder
	for _, name := range noticeNames {
		n, err := unix.Fgetxattr(int(dir.Fd()), name, text)
		if err == nil && json.Unmarshal(text[:n], &h) == nil && h.PID > 0 {
			return h
		}
	}
	return Holder{PID: lockHolderPID(dir)}
}

// whyNotAgent returns the reason why the process that has locked a directory cannot be an agent; nil if the process is
// possibly an agent. Every user who can open a directory can lock it, but an agent runs as root.
func whyNotAgent(dir *os.File) error {
	pid := lockHolderPID(dir)
	if pid == 0 || os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil || st.Uid == 0 {
		return nil //nolint:nilerr // the process has ended meanwhile, or is root's
	}
	return fmt.Errorf("process %d of user %d has locked the directory, but an agent runs as root, so this agent ignores the lock: end that process", pid, st.Uid)
}

// lockHolderPID returns the id of the process that has locked a directory; 0 if it is unknown.
func lockHolderPID(dir *os.File) int {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return 0
	}
	return findLockHolder(locks, st.Dev, st.Ino)
}

// findLockHolder reads a list of locks, and returns the id of the process that has an exclusive flock on an inode; 0 if
// there is no such process. The list has the format of /proc/locks (proc(5)), and lists only processes of the agent's
// PID namespace.
func findLockHolder(locks io.Reader, dev, ino uint64) int {
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	for s := bufio.NewScanner(locks); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "WRITE" || f[5] != inode {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
