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

// lockName is the file in paths.state whose lock an agent holds for as long as it
// runs. It says which process that is.
const lockName = "agent.lock"

// handover is how long an agent waits for the one before it to end: an upgrade
// starts the new one while the old one saves its state.
const handover = 10 * time.Second

// lockPause is the pause between two checks of a lock that another process holds.
const lockPause = 50 * time.Millisecond

// own takes the state directory for this agent alone, before anything in it is
// read. Two agents on one directory would give the same CPUs to two pods.
func (a *Agent) own() error {
	path := a.opt.Config.Paths.State
	if path == "" {
		return nil
	}
	if err := a.files.prepare(); err != nil {
		return err
	}
	held, err := lockState(a.files.dir, handover, func(by string) {
		a.log.Info("another agent runs on this state directory; waiting for it to end", logkey.File, path, logkey.Owner, by)
	})
	if err != nil {
		return err
	}
	closeRest := a.close
	a.close = func() error { return errors.Join(closeRest(), held.Close()) } // after all is saved
	return nil
}

// lockState takes the lock of a state directory. If another process has it, it logs
// which one and waits; the error names it.
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
			// The process is named for people; the lock is what counts.
			_, _ = f.Write([]byte(strconv.Itoa(os.Getpid()) + "\n"))
			return f, nil
		case last:
			return nil, errors.Join(fmt.Errorf("another agent (%s) runs on the state directory %s: end it, or give this one a paths.state of its own",
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

// holder names the process that has a lock, for people. It ignores the rest of a
// longer number behind the first line.
func holder(dir *statefile.Dir) string {
	text, err := dir.Read(lockName)
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if pid, ok := strconv.Atoi(string(line)); err == nil && ok == nil {
		return "process " + strconv.Itoa(pid)
	}
	return "process unknown"
}
