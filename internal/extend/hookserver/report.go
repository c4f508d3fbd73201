package hookserver

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Result is the result of a call.
type Result string

// The results.
const (
	Done        Result = "done"
	Failed      Result = "failed"      // it answered with an error
	TimedOut    Result = "timeout"     // it did not answer in time
	Unreachable Result = "unreachable" // no process serves the socket, or a process of another user does
	Skipped     Result = "skipped"     // the agent did not call it, because its circuit breaker is open
	Ended       Result = "ended"       // the event ended before the server answered, or before the agent called it
)

// Results lists the results of calls.
func Results() []Result { return []Result{Done, Failed, TimedOut, Unreachable, Skipped, Ended} }

// Recorder counts calls, for metrics. Its method returns at once. Servers have the names of files that an
// administrator made.
type Recorder interface {
	Call(server string, stage Stage, result Result, took time.Duration)
}

// NoRecorder records nothing.
type NoRecorder struct{}

// Call does nothing.
func (NoRecorder) Call(string, Stage, Result, time.Duration) {}

// State is one file of the directory, for status.
type State struct {
	Name     string // of the file
	Endpoint string
	Policy   Policy
	Stages   []Stage
	// InForce says that a registration of the file is in force. Err says what is wrong with its newest content or
	// with the server, or is "".
	InForce bool
	Err     string
	// CircuitOpen says that the agent does not call the server for now, after several failures in a row.
	CircuitOpen bool
	Calls       uint64
	Failed      uint64
}

// States returns all files of the directory except our own, in the order in which their servers are called. The
// error says what is wrong with the directory.
func (s *Servers) States() ([]State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.o.Now()
	var out []State
	for _, name := range s.order {
		if f := s.files[name]; f != nil && !errors.Is(f.err, errOwn) {
			out = append(out, f.state(now))
		}
	}
	return out, s.err
}

func (f *file) state(now time.Time) State {
	st := State{Name: f.name}
	var wrong []string
	switch {
	case f.err != nil && f.server != nil:
		wrong = append(wrong, f.err.Error()+"; its earlier content stays in force")
	case f.err != nil:
		wrong = append(wrong, f.err.Error())
	}
	if len(f.unknownStages) > 0 {
		wrong = append(wrong, fmt.Sprintf("unknown stages ignored: %s", short(strings.Join(f.unknownStages, ", "))))
	}
	if srv := f.server; srv != nil {
		st.InForce, st.Endpoint, st.Policy, st.Stages = true, srv.r.Endpoint, srv.r.Policy, srv.r.Stages
		l := srv.link
		l.mu.Lock()
		st.Calls, st.Failed = l.calls, l.failed
		st.CircuitOpen = l.breaker.Open(now)
		if l.lastErr != nil {
			wrong = append(wrong, l.lastErr.Error())
		}
		l.mu.Unlock()
	}
	st.Err = strings.Join(wrong, "; ")
	return st
}
