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

// originalsName is the file in paths.state with the contents of cgroup files from
// before our first write. Its first line names the boot: cgroups do not outlive
// one.
const originalsName = "originals.jsonl"

// errInUse refuses to restore the originals while an agent runs.
var errInUse = errors.New("an agent is running on this state directory")

// originals is the keeper's journal in a file. It logs the first of many
// failures, and their end.
type originals struct {
	*statefile.Lines
	path string
	log  *slog.Logger

	mu     sync.Mutex
	failed bool
}

// openOriginals opens the journal in a state directory, and returns what an earlier
// agent of this boot left there, nil if there was none. locked says that no other
// process has it. After an error it can still be used: what the keeper knows is
// written once that is possible.
func openOriginals(dir *statefile.Dir, log *slog.Logger) (o *originals, earlier []byte, locked bool, err error) {
	o = &originals{path: dir.Path(originalsName), log: log}
	o.Lines, earlier, locked, err = statefile.OpenLines(dir, originalsName, bootID())
	return o, earlier, locked, err
}

// keepOriginals makes the keeper remember original values over a restart. It
// returns a function that closes the journal, and one for the rest. Without a state
// directory, or if it fails, the keeper remembers them only while it runs.
func (s *stateFiles) keepOriginals(k *keeper.Keeper, rest func() error) func() error {
	if s.dir == nil {
		return rest
	}
	journal, earlier, locked, err := openOriginals(s.dir, s.log)
	if err != nil {
		s.log.Error("the original kernel values cannot be read or saved yet; the agent tries again", logkey.Err, err)
	}
	if !locked {
		s.log.Warn("another agent uses this state directory", logkey.File, s.dir.Path(originalsName))
	}
	if err != nil {
		k.Originals.LoadFailed(err)
	}
	if err := k.Originals.Load(journal, earlier); err != nil {
		s.log.Warn("the file of an earlier agent cannot be read", logkey.Err, err)
	}
	return func() error {
		k.Originals.SaveNow() // retries a write that failed before, for instance on a full disk
		return errors.Join(rest(), journal.Close())
	}
}

// Append adds lines. The keeper replaces all of them if that fails.
func (o *originals) Append(lines []byte) error {
	err := o.Lines.Append(lines)
	if err == nil {
		o.report(nil)
	}
	return err
}

// Replace writes a new file next to the old one.
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
		o.log.Error("the original kernel values are not saved; a restart would lose them", logkey.File, o.path, logkey.Err, err)
	case !failed && o.failed:
		o.log.Info("the original kernel values are saved again", logkey.File, o.path)
	}
	o.failed = err != nil
}

// bootID names this boot of the machine, "" if that is not known.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("{\"boot\":%q}", strings.TrimSpace(string(id)))
}
