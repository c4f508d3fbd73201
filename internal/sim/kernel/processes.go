package kernel

import (
	"maps"
	"sync"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Processes simulates the attributes that the agent sets on running threads: limits, scheduling policies and I/O
// priorities. It has only the attributes that the agent has set, and not those that an OCI runtime sets.
type Processes struct {
	mu      sync.Mutex
	textsOf map[int]map[string]string // the texts of values by thread and setting
}

// NewProcesses returns a simulated kernel in which the agent has set no attribute.
func NewProcesses() *Processes { return &Processes{textsOf: map[int]map[string]string{}} }

// Has reports whether a thread has a value that Set has set.
func (p *Processes) Has(thread int, v lifecycle.Value) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.textsOf[thread][v.Setting()] == v.Text, nil
}

// Set sets a value on a thread.
func (p *Processes) Set(thread int, v lifecycle.Value) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.textsOf[thread] == nil {
		p.textsOf[thread] = map[string]string{}
	}
	p.textsOf[thread][v.Setting()] = v.Text
	return nil
}

// TextsOf returns the texts of the values that were set on a thread, by setting.
func (p *Processes) TextsOf(thread int) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.textsOf[thread])
}
