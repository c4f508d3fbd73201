package kernel

import (
	"maps"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Processes simulates the attributes that the agent sets on running threads: limits, scheduling policies and I/O
// priorities. It lacks attributes that an OCI runtime sets.
type Processes struct {
	mu sync.Mutex
	of map[int]map[string]string // the texts of values by thread and setting
}

// NewProcesses returns a kernel in which no attribute was set.
func NewProcesses() *Processes { return &Processes{of: map[int]map[string]string{}} }

// Has reports whether a value was set on a thread.
func (p *Processes) Has(thread int, v lifecycle.Value) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[thread][v.Setting()] == v.Text, nil
}

// Set sets a value on a thread.
func (p *Processes) Set(thread int, v lifecycle.Value) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[thread] == nil {
		p.of[thread] = map[string]string{}
	}
	p.of[thread][v.Setting()] = v.Text
	return nil
}

// Of returns the texts of the values that were set on a thread, by setting.
func (p *Processes) Of(thread int) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.of[thread])
}
