package nodelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// LockedDir is a directory that every agent of a node must open to do its work.
type LockedDir struct {
	Dir string
	// Description describes the directory for users, with its configuration key.
	Description string
}

// InUseError is the reason why an agent stays in standby: another agent works on this node.
type InUseError struct {
	Holder Holder
	// Evidence is a text for users that says how this agent noticed the other agent.
	Evidence string
}

// Error describes the other agent and says what to do.
func (t *InUseError) Error() string {
	return fmt.Sprintf("another agent works on this node (%s): %s; this agent is in standby and takes over when the other one ends: run one agent on a node", t.Holder, t.Evidence)
}

// Lock is this agent's lock on a node.
type Lock struct {
	self       Holder
	lockedDirs []LockedDir // the directories that Take locks, if they exist

	mu       sync.Mutex          // guards the fields below
	openDirs map[string]*os.File // the directories that this agent has locked, by path
}

// New returns a Lock that has locked no directory yet. Agents that share several directories must list them in the same
// order.
func New(self Holder, lockedDirs ...LockedDir) *Lock {
	return &Lock{self: self, lockedDirs: lockedDirs, openDirs: map[string]*os.File{}}
}

// Self returns the description of this agent.
func (l *Lock) Self() Holder { return l.self }

// Take locks all directories that exist. The caller may call Take again at any time: Take keeps the locks of earlier
// calls, and locks directories that have appeared or were replaced since the last call. If another agent has locked a
// directory, the error is an *InUseError, and Take releases the locks of this call. Any other error lists the
// directories that Take could not lock; Take has locked the other directories.
func (l *Lock) Take() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := map[string]*os.File{}
	var unlocked []error
	for _, p := range l.lockedDirs {
		f, err := l.lockDir(p, fresh)
		var taken *InUseError
		if errors.As(err, &taken) {
			for _, got := range fresh {
				removeNotice(got)
				_ = got.Close()
			}
			return err
		}
		unlocked = append(unlocked, err)
		if f != nil {
			fresh[p.Dir] = f
		}
	}
	for dir, f := range fresh {
		if old := l.openDirs[dir]; old != nil {
			_ = old.Close() // the old lock was on a directory that was replaced
		}
		l.openDirs[dir] = f
	}
	return errors.Join(unlocked...)
}

// lockDir locks one directory. It returns nil if this agent has locked the directory already, or if the directory
// does not exist. The parameter fresh has the directories that this call of Take has locked. The caller holds mu.
func (l *Lock) lockDir(p LockedDir, fresh map[string]*os.File) (*os.File, error) {
	f, err := os.OpenFile(p.Dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil //nolint:nilnil // no agent can attach there
	case err != nil:
		return nil, fmt.Errorf("lock the %s against a second agent: %w", p.Description, err)
	}
	if l.isLockedHere(f, fresh) {
		return nil, f.Close()
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		writeNotice(f, l.self)
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		if stranger := whyNotAgent(f); stranger != nil {
			return nil, errors.Join(fmt.Errorf("lock the %s, %s, against a second agent: %w", p.Description, p.Dir, stranger), f.Close())
		}
		taken := &InUseError{Holder: holderOf(f), Evidence: fmt.Sprintf("it has locked the %s, %s", p.Description, p.Dir)}
		return nil, errors.Join(taken, f.Close())
	}
	return nil, errors.Join(fmt.Errorf("lock the %s, %s, against a second agent: %w", p.Description, p.Dir, err), f.Close())
}

// isLockedHere reports whether this agent has already locked a directory, perhaps under another path.
func (l *Lock) isLockedHere(f *os.File, fresh map[string]*os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	for _, all := range []map[string]*os.File{l.openDirs, fresh} {
		for _, h := range all {
			if has, err := h.Stat(); err == nil && os.SameFile(has, info) {
				return true
			}
		}
	}
	return false
}

// Release unlocks all directories.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for dir, f := range l.openDirs {
		removeNotice(f)
		errs = append(errs, f.Close())
		delete(l.openDirs, dir)
	}
	return errors.Join(errs...)
}
