package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// originalsFile is the file in paths.state with the contents that cgroup files had before the agent's first write. Its
// first line has the id of the boot, because cgroups do not survive a reboot.
const originalsFile = "originals.jsonl"

// errInUse is the error of ReleaseAlone if an agent runs.
var errInUse = errors.New("an agent is using this state directory")

// originals stores the keeper's journal of original values in a file. It logs the first of consecutive failures, and
// the next success.
type originals struct {
	*statefile.Lines
	path string
	log  *slog.Logger

	mu             sync.Mutex // guards lastSaveFailed
	lastSaveFailed bool
}

// openOriginals opens the journal in a state directory. earlier has the entries of an earlier agent of this boot. It is
// nil if there is no readable journal, and empty if the journal is of another boot. locked reports whether this process
// holds the lock. After an error the journal can still be used, because the keeper retries its writes.
func openOriginals(dir *statefile.Dir, log *slog.Logger) (o *originals, earlier []byte, locked bool, err error) {
	o = &originals{path: dir.Path(originalsFile), log: log}
	o.Lines, earlier, locked, err = statefile.OpenLines(dir, originalsFile, bootID())
	return o, earlier, locked, err
}

// keepOriginals makes the keeper store original values in a journal, so that they survive a restart of the agent. It
// returns a function that saves unsaved values, calls rest and closes the journal. Without a state directory the
// keeper stores the values only in memory.
func (s *stateFiles) keepOriginals(k *keeper.Keeper, rest func() error) func() error {
	if s.dir == nil {
		return rest
	}
	journal, earlier, locked, err := openOriginals(s.dir, s.log)
	if err != nil {
		s.log.Error("the agent cannot open the file of original kernel values; it tries again", logkey.Err, err)
	}
	if !locked {
		s.log.Warn("another agent has locked the file of original kernel values", logkey.File, s.dir.Path(originalsFile))
	}
	if err != nil {
		k.Originals.LoadFailed(err)
	}
	if err := k.Originals.Load(journal, earlier); err != nil {
		s.log.Warn("the agent cannot read the original kernel values of an earlier agent", logkey.Err, err)
	}
	return func() error {
		k.Originals.SaveNow() // retries a write that failed before, for example because the disk was full
		return errors.Join(rest(), journal.Close())
	}
}

// Append adds lines to the journal. It logs no error, because the keeper then calls Replace.
func (o *originals) Append(lines []byte) error {
	err := o.Lines.Append(lines)
	if err == nil {
		o.report(nil)
	}
	return err
}

// Replace replaces all lines of the journal.
func (o *originals) Replace(lines []byte) error {
	err := o.Lines.Replace(lines)
	o.report(err)
	return err
}

func (o *originals) report(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch failed := err != nil; {
	case failed && !o.lastSaveFailed:
		o.log.Error("the agent cannot save the original kernel values; if it restarts now, they are lost", logkey.File, o.path, logkey.Err, err)
	case !failed && o.lastSaveFailed:
		o.log.Info("the agent can save the original kernel values again", logkey.File, o.path)
	}
	o.lastSaveFailed = err != nil
}

// bootID returns the id of the current boot as a JSON object; "" if it is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("{\"boot\":%q}", strings.TrimSpace(string(id)))
}
