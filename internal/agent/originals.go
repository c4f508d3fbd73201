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

// originalsName is the file in paths.state with the contents that cgroup files had before the agent's first
// write. Its first line identifies the boot, because cgroups do not survive a reboot.
const originalsName = "originals.jsonl"

// errInUse is returned if originals cannot be restored because an agent runs.
var errInUse = errors.New("an agent is running on this state directory")

// originals stores the keeper's journal in a file. Of many consecutive failures it logs the first one and
// the recovery.
type originals struct {
	*statefile.Lines
	path string
	log  *slog.Logger

	mu     sync.Mutex
	failed bool
}

// openOriginals opens the journal in a state directory. It returns the entries that an earlier agent of
// this boot left; nil if there was no journal. locked reports whether this process holds the lock. After an
// error the journal can still be used: the keeper writes its entries as soon as that is possible.
func openOriginals(dir *statefile.Dir, log *slog.Logger) (o *originals, earlier []byte, locked bool, err error) {
	o = &originals{path: dir.Path(originalsName), log: log}
	o.Lines, earlier, locked, err = statefile.OpenLines(dir, originalsName, bootID())
	return o, earlier, locked, err
}

// keepOriginals makes the keeper store original values, so that they survive a restart. It returns a
// function that closes the journal, and one that retries failed writes. Without a state directory, or after
// an error, the keeper stores them in memory only.
func (s *stateFiles) keepOriginals(k *keeper.Keeper, rest func() error) func() error {
	if s.dir == nil {
		return rest
	}
	journal, earlier, locked, err := openOriginals(s.dir, s.log)
	if err != nil {
		s.log.Error("the agent cannot read or save the original kernel values yet; it tries again", logkey.Err, err)
	}
	if !locked {
		s.log.Warn("another agent uses this state directory", logkey.File, s.dir.Path(originalsName))
	}
	if err != nil {
		k.Originals.LoadFailed(err)
	}
	if err := k.Originals.Load(journal, earlier); err != nil {
		s.log.Warn("the agent cannot read the file of an earlier agent", logkey.Err, err)
	}
	return func() error {
		k.Originals.SaveNow() // retries a write that failed before, for example because the disk was full
		return errors.Join(rest(), journal.Close())
	}
}

// Append adds lines. If that fails, the keeper replaces all lines.
func (o *originals) Append(lines []byte) error {
	err := o.Lines.Append(lines)
	if err == nil {
		o.report(nil)
	}
	return err
}

// Replace writes a new file and renames it to the old name.
func (o *originals) Replace(lines []byte) error {
	err := o.Lines.Replace(lines)
	o.report(err)
	return err
}

func (o *originals) report(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch failed := err != nil; {
	case failed && !o.failed:
		o.log.Error("the agent cannot save the original kernel values; a restart would lose them", logkey.File, o.path, logkey.Err, err)
	case !failed && o.failed:
		o.log.Info("the original kernel values are saved again", logkey.File, o.path)
	}
	o.failed = err != nil
}

// bootID returns the id of this boot of the machine; "" if it is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("{\"boot\":%q}", strings.TrimSpace(string(id)))
}
