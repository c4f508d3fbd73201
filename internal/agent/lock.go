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

// lockName is the file in paths.state that an agent locks while it runs. The file contains the id of that
// process.
const lockName = "agent.lock"

// handover is how long an agent waits for the previous agent to end. During an upgrade the new agent starts
// while the old one still saves its state.
const handover = 10 * time.Second

// lockPause is the pause between two checks of a lock that another process holds.
const lockPause = 50 * time.Millisecond

// own locks the state directory for this agent before the agent reads it. Two agents with the same
// directory would give the same CPUs to two pods.
func (a *Agent) own() error {
	path := a.opt.Config.Paths.State
	if path == "" {
		return nil
	}
	if err := a.files.prepare(); err != nil {
		return err
	}
	held, err := lockState(a.files.dir, handover, func(by string) {
		a.log.Info("another agent uses this state directory; waiting until it ends", logkey.File, path, logkey.Owner, by)
	})
	if err != nil {
		return err
	}
	closeRest := a.close
	a.close = func() error { return errors.Join(closeRest(), held.Close()) } // after all state is saved
	return nil
}

// lockState locks a state directory. If another process holds the lock, lockState logs the process and
// waits; a final error names the process.
func lockState(dir *statefile.Dir, patience time.Duration, waits func(by string)) (io.Closer, error) {
	f, err := dir.Open(lockName)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory (paths.state): %w", err)
	}
	waiting := false
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for last := patience <= 0; ; {
		mine, err := f.Lock()
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock the state directory (paths.state): %w", err), f.Close())
		case mine:
			// The process id is only information for users; the lock decides.
			_, _ = f.Write([]byte(strconv.Itoa(os.Getpid()) + "\n"))
			return f, nil
		case last:
			return nil, errors.Join(fmt.Errorf("another agent (%s) uses the state directory %s: stop it, or set another paths.state for this one",
				holder(dir), filepath.Dir(dir.Path(lockName))), f.Close())
		}
		if !waiting {
			waits(holder(dir))
			waiting = true
		}
		select {
		case <-end.C:
			last = true
		case <-again.C:
		}
	}
}

// holder returns the id of the process that holds a lock, for messages. It ignores digits that a longer id
// of an earlier process left in the file.
func holder(dir *statefile.Dir) string {
	text, err := dir.Read(lockName)
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if pid, ok := strconv.Atoi(string(line)); err == nil && ok == nil {
		return "process " + strconv.Itoa(pid)
	}
	return "process unknown"
}
