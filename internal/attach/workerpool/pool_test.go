package workerpool_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/attach/workerpool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPool runs all given functions concurrently, including those that they start, and leaves no goroutine.
func TestPool(t *testing.T) {
	var c workerpool.Pool
	for range 2 { // the pool can be used again
		var ran atomic.Int32
		var callers, beside sync.WaitGroup
		beside.Add(40)
		for range 40 {
			callers.Go(func() {
				for i := range 100 {
					c.Go(func() {
						ran.Add(1)
						if i == 0 {
							beside.Done()
							beside.Wait() // no function waits for another one to end
							c.Go(func() { ran.Add(1) })
						}
					})
				}
			})
		}
		callers.Wait()
		c.Wait()
		if n := ran.Load(); n != 40*101 {
			t.Errorf("%d have run, want %d", n, 40*101)
		}
	}
}
