package real

import (
	"testing"
	"time"
)

const pollEvery = 5 * time.Millisecond

// Eventually waits until cond returns nil. After timeout it ends the test with cond's last error.
func Eventually(t testing.TB, timeout time.Duration, cond func() error) {
	t.Helper()
	if err := poll(timeout, cond); err != nil {
		t.Fatalf("not within %v: %v", timeout, err)
	}
}

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
