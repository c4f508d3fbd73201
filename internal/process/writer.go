package process

import (
	"errors"
	"sync"
	"syscall"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Kernel reads and sets attributes of single threads. A resource limit applies to the thread's whole process.
type Kernel interface {
	// Has reports whether a thread's attribute has a value.
	Has(thread int, v lifecycle.Value) (bool, error)
	// Set sets a thread's attribute to a value.
	Set(thread int, v lifecycle.Value) error
}

// Writer sets the attributes of containers' processes. Its methods may be called by several goroutines concurrently.
type Writer struct {
	kernel Kernel

	mu        sync.Mutex                   // guards setValues
	setValues map[string]map[string]string // by container and setting: the value that Apply has set
}

// New makes a Writer for a kernel's threads.
func New(k Kernel) *Writer { return &Writer{kernel: k, setValues: map[string]map[string]string{}} }

// maxRounds limits how often Apply reads the list of threads.
const maxRounds = 5

// Apply sets a value for the threads of a container, unless it has set this value before. found reports whether there
// were any threads, and changed whether one of them had another value. Threads that start meanwhile may have the
// earlier value of their parent, so Apply repeats until all threads have the value, but at most maxRounds times.
func (w *Writer) Apply(owner string, v lifecycle.Value, threads func() ([]int, error)) (found, changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.setValues[owner][v.Setting()] == v.Text {
		return true, false, nil
	}
	for range maxRounds {
		all, err := threads()
		if err != nil || len(all) == 0 {
			return found, changed, err
		}
		found = true
		again, err := w.setLocked(all, v)
		changed = changed || again
		if err != nil {
			return found, changed, err
		}
		if !again {
			break
		}
	}
	if w.setValues[owner] == nil {
		w.setValues[owner] = map[string]string{}
	}
	w.setValues[owner][v.Setting()] = v.Text
	return found, changed, nil
}

// setLocked sets a value for the threads that do not have it. It skips threads that have ended.
func (w *Writer) setLocked(threads []int, v lifecycle.Value) (changed bool, err error) {
	for _, id := range threads {
		has, err := w.kernel.Has(id, v)
		if err == nil && !has {
			if err = w.kernel.Set(id, v); err == nil {
				changed = true
			}
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return changed, err
		}
	}
	return changed, nil
}

// Forget deletes the record of the values that were set for a container that has ended.
func (w *Writer) Forget(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.setValues, owner)
}
