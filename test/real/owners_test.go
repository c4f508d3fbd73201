package real_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// owners is a set of owners that a sampler reads while pods come and go.
type owners struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s *owners) set(id string, owns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = owns
}

func (s *owners) has(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[filepath.Base(dir)]
}

// needV1 skips where the host's cgroups are version 2: these tests name files of version 1.
func needV1(t *testing.T, c *real.Containerd) {
	t.Helper()
	if v := c.CgroupVersion(); v != 1 {
		t.Skipf("SKIPPED: names cgroup v1 files, and this host has version %d", v)
	}
}
