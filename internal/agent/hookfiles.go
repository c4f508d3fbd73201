package agent

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// hookFilesInterval is how often the agent reads the directories of OCI hooks again.
const hookFilesInterval = 5 * time.Second

// watchHookFiles applies the configuration again when a file of OCI hooks has changed, until ctx ends.
func (s *settings) watchHookFiles(ctx context.Context) {
	tick := time.NewTicker(hookFilesInterval)
	defer tick.Stop()
	was := s.hookFiles()
	s.logHookFiles(was)
	for {
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
			s.log.Error("the agent cannot apply the changed files of OCI hooks; the old hooks stay in force", logkey.Err, err)
			continue
		}
		was = now
		s.logHookFiles(now)
	}
}

// logHookFiles logs how many files of OCI hooks the agent has read. If there is none, it logs a warning, because the
// directories may not be mounted in the agent's pod.
func (s *settings) logHookFiles(files []lifecycle.HookFile) {
	c := s.current()
	if !c.Hooks.OCIHooks.Enabled {
		return
	}
	where := strings.Join(c.Hooks.OCIHooks.Directories, ", ")
	if len(files) == 0 {
		s.log.Warn("no file of OCI hooks is in hooks.ociHooks.directories, so no container gets a hook", logkey.File, where)
		return
	}
	s.log.Info("the agent has read the files of OCI hooks", logkey.File, where, logkey.Values, len(files))
}

// hookFiles reads the files of OCI hooks; nil if hooks.ociHooks is disabled.
func (s *settings) hookFiles() []lifecycle.HookFile {
	c := s.current()
	if !c.Hooks.OCIHooks.Enabled {
		return nil
	}
	return s.node.HookFiles(c.Hooks.OCIHooks.Directories)
}
