package process

import (
	"errors"
	"sync"
	"syscall"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Kernel reads and sets attributes of single threads. A resource limit applies to the whole process of the thread.
type Kernel interface {
	// Has reports whether an attribute of a thread has the value v. The field and the key of v name the attribute.
	Has(thread int, v lifecycle.Value) (bool, error)
	// Set gives an attribute of a thread the value v. The field and the key of v name the attribute.
	Set(thread int, v lifecycle.Value) error
}

// Writer sets the attributes of containers' processes. Its methods may be called by several goroutines concurrently.
type Writer struct {
	kernel Kernel

	mu        sync.Mutex                   // guards setValues
	setValues map[string]map[string]string // by container and setting: the value that Apply has set
}

// New returns a Writer that uses k to read and set the attributes of threads.
func New(k Kernel) *Writer { return &Writer{kernel: k, setValues: map[string]map[string]string{}} }

// maxRounds is the maximum number of times that one call of Apply reads the list of threads.
const maxRounds = 5

// Apply sets a value for the threads of a container, unless Apply has set this value before. container is the
// container's id. found reports whether the container had threads. changed reports whether one of the threads had
// another value. A thread that starts meanwhile may inherit the earlier value of its parent. So Apply repeats its work
// until all threads have the value, but at most maxRounds times.
func (w *Writer) Apply(container string, v lifecycle.Value, threads func() ([]int, error)) (found, changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.setValues[container][v.Setting()] == v.Text {
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
			w.noteSetLocked(container, v)
			return found, changed, nil
		}
	}
	return found, changed, nil // a later call continues
}

// noteSetLocked notes that all threads of a container have a value.
func (w *Writer) noteSetLocked(container string, v lifecycle.Value) {
	if w.setValues[container] == nil {
		w.setValues[container] = map[string]string{}
	}
	w.setValues[container][v.Setting()] = v.Text
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

// Forget deletes the record of the values that were set for a container, because the container has ended.
func (w *Writer) Forget(container string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.setValues, container)
}
