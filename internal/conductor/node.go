package conductor

import (
	"sync"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// node is what is decided on the node and how far it has been brought there. Its
// methods run under mu and do no I/O; those that take mu themselves say so.
type node struct {
	mu sync.Mutex // guards all below; never held across I/O

	state      *engine.State
	tracks     map[string]*track // by container or sandbox id
	queue      *runtimesync.Queue
	runtimes   map[string]attached
	ceded      map[lifecycle.Field]bool
	undone     map[placement.Key]int // creations in a row that failed after us
	checkpoint *record.Checkpoint
	signer     *record.Signer
	unified    bool // cgroups are of version 2
}
