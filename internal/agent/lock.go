package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// lockFile is the file in paths.state that an agent locks while it runs. It contains the agent's process id.
const lockFile = "agent.lock"

// handoverTimeout is how long an agent waits for the previous agent to end. During an upgrade the new agent starts
// while the old one still saves its state.
const handoverTimeout = 10 * time.Second

// lockPause is the pause between two checks of a lock that another process holds.
const lockPause = 50 * time.Millisecond

// lockState locks the state directory before the agent reads it. Two agents with the same state directory would give
// the same CPUs to two pods.
func (a *Agent) lockState() error {
	path := a.opt.Config.Paths.State
	if path == "" {
		return nil
	}
	if err := a.files.prepare(); err != nil {
		return err
	}
	held, err := lockState(a.files.dir, handoverTimeout, func(by string) {
		a.log.Info("another agent uses this state directory; this agent waits until the other one ends", logkey.File, path, logkey.Owner, by)
	})
	if err != nil {
		return err
	}
	closeRest := a.close
	a.close = func() error { return errors.Join(closeRest(), held.Close()) } // the lock is released after all state is saved
	return nil
}

// lockState locks a state directory. If another process holds the lock, lockState calls onWait once with a text about
// that process, and tries again until the timeout has passed. Then it returns an error with the id of that process.
func lockState(dir *statefile.Dir, timeout time.Duration, onWait func(by string)) (io.Closer, error) {
	f, err := dir.Open(lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory (paths.state): %w", err)
	}
	waiting := false
	end := time.NewTimer(timeout)
	defer end.Stop()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for last := timeout <= 0; ; {
		mine, err := f.Lock()
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock the state directory (paths.state): %w", err), f.Close())
		case mine:
			// The process id is only for messages, so an error of Write does not matter.
			_, _ = f.Write([]byte(strconv.Itoa(os.Getpid()) + "\n"))
			return f, nil
		case last:
			return nil, errors.Join(fmt.Errorf("another agent (%s) uses the state directory %s: stop that agent, or set another paths.state for this agent",
				lockHolder(dir), filepath.Dir(dir.Path(lockFile))), f.Close())
		}
		if !waiting {
			onWait(lockHolder(dir))
			waiting = true
		}
		select {
		case <-end.C:
			last = true
		case <-again.C:
		}
	}
}

// lockHolder returns a text with the id of the process that holds the lock of a directory, for messages. It ignores
// digits that a longer id of an earlier process left in the file.
func lockHolder(dir *statefile.Dir) string {
	text, err := dir.Read(lockFile)
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if pid, ok := strconv.Atoi(string(line)); err == nil && ok == nil {
		return "process " + strconv.Itoa(pid)
	}
	return "an unknown process"
}
