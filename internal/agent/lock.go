package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// lockName is the file in paths.state whose lock an agent holds for as long as it
// runs. It says which process that is.
const lockName = "agent.lock"

// handover is how long an agent waits for the one before it to end: an upgrade
// starts the new one while the old one saves what it knows.
const handover = 10 * time.Second

// lockPause is between two looks at a lock that somebody holds.
const lockPause = 50 * time.Millisecond

// own takes the state directory for this agent alone, before anything in it is
// read. Two agents on one directory would give the same CPUs to two pods.
func (a *Agent) own() error {
	dir := a.opt.Config.Paths.State
	if dir == "" {
		return nil
	}
	held, err := lockState(dir, handover, func(by string) {
		a.log.Info("another agent runs on this state directory; waiting for it to end", logkey.File, dir, logkey.Owner, by)
	})
	if err != nil {
		return err
	}
	closeRest := a.close
	a.close = func() error { return errors.Join(closeRest(), held.Close()) } // after all is saved
	return nil
}

// lockState takes the lock of a state directory. It waits while another has it,
// having told whom, and the error says so.
func lockState(dir string, patience time.Duration, waits func(by string)) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory (paths.state): %w", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory (paths.state): %w", err)
	}
	told := false
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for last := patience <= 0; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			// The process is named for people; the lock is what counts.
			_ = f.Truncate(0)
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			return f, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		case last:
			return nil, errors.Join(
				fmt.Errorf("another agent (%s) runs on the state directory %s: end it, or give this one a paths.state of its own", holder(path), dir), f.Close())
		}
		if !told {
			waits(holder(path))
			told = true
		}
		select {
		case <-end.C:
			last = true
		case <-again.C:
		}
	}
}

// holder names the process that has a lock, for people.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if pid, ok := strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && ok == nil {
		return "process " + strconv.Itoa(pid)
	}
	return "process unknown"
}
