package real

import (
	"testing"
	"time"
)

// pollEvery is the pause between two calls of a condition.
const pollEvery = 5 * time.Millisecond

// Eventually waits until cond returns nil. After timeout it ends the test with cond's last error.
func Eventually(t testing.TB, timeout time.Duration, cond func() error) {
	t.Helper()
	if err := poll(timeout, cond); err != nil {
		t.Fatalf("the condition did not hold within %v: %v", timeout, err)
	}
}

// poll calls cond until it returns nil or the timeout has passed. It returns the last error of cond.
func poll(timeout time.Duration, cond func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollEvery)
	}
}
