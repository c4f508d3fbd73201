package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// hookFilesInterval is how often the agent reads directories of OCI hooks again.
const hookFilesInterval = 5 * time.Second

// watchHookFiles makes the policy's hooks again when a file of OCI hooks has changed, until ctx ends.
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
			s.log.Error("the agent cannot make the hooks again; the old hooks stay in force", logkey.Err, err)
			continue
		}
		was = now
	}
}

// hookFiles returns the files of OCI hooks as they are now; nil if the hook is disabled.
func (s *settings) hookFiles() []lifecycle.HookFile {
	c := s.current()
	if !c.Hooks.OCIHooks.Enabled {
		return nil
	}
	return s.node.HookFiles(c.Hooks.OCIHooks.Directories)
}
