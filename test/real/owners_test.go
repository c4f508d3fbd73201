package real_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// owners is a set of owners for a sampler, safe for concurrent use.
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

// needV1 skips the test on a cgroup v2 host: the test names files of version 1.
func needV1(t *testing.T, c *real.Containerd) {
	t.Helper()
	if v := c.CgroupVersion(); v != 1 {
		t.Skipf("SKIPPED: names cgroup v1 files, and this host has version %d", v)
	}
}
