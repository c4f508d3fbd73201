package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// hookFilesInterval is how often directories of OCI hooks are read again.
const hookFilesInterval = 5 * time.Second

// watchHookFiles makes the hooks again when a file of OCI hooks has changed, until ctx ends.
func (s *settings) watchHookFiles(ctx context.Context) {
	tick := time.NewTicker(hookFilesInterval)
	defer tick.Stop()
	for was := s.hookFiles(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := s.hookFiles()
		if reflect.DeepEqual(was, now) {
			continue
		}
		if err := s.apply(s.current()); err != nil {
			s.log.Error("hooks cannot be made again; the old ones stay", logkey.Err, err)
			continue
		}
		was = now
	}
}

// hookFiles are the files of OCI hooks as they are now; nil while the hook is off.
func (s *settings) hookFiles() []lifecycle.HookFile {
	c := s.current()
	if !c.Hooks.OCIHooks.Enabled {
		return nil
	}
	return s.node.HookFiles(c.Hooks.OCIHooks.Directories)
}
