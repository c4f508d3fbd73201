package kernel

import (
	"maps"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Processes simulates the attributes of threads that are set from outside: limits, scheduling policies and I/O
// priorities. It does not have those that an OCI runtime sets.
type Processes struct {
	mu sync.Mutex
	of map[int]map[string]string // by thread and setting
}

// NewProcesses returns a kernel in which nothing was set.
func NewProcesses() *Processes { return &Processes{of: map[int]map[string]string{}} }

// Has reports whether a thread has a value.
func (p *Processes) Has(thread int, v lifecycle.Value) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[thread][v.Setting()] == v.Text, nil
}

// Set gives a thread a value.
func (p *Processes) Set(thread int, v lifecycle.Value) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[thread] == nil {
		p.of[thread] = map[string]string{}
	}
	p.of[thread][v.Setting()] = v.Text
	return nil
}

// Of returns the texts that a thread was given, by setting.
func (p *Processes) Of(thread int) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.of[thread])
}
