package hookserver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
)

// Result is the result of a call.
type Result string

// The results.
const (
	Done        Result = "done"        // the server answered without an error
	Failed      Result = "failed"      // the server answered with an error
	TimedOut    Result = "timeout"     // the server did not answer in time
	Unreachable Result = "unreachable" // no process serves the socket, or a process of an untrusted user serves it
	Skipped     Result = "skipped"     // the agent did not call the server, because its circuit breaker is open
	EventEnded  Result = "ended"       // the event ended before the server answered, or before the agent called it
)

// Results lists the results of calls.
func Results() []Result { return []Result{Done, Failed, TimedOut, Unreachable, Skipped, EventEnded} }

// Recorder counts calls, for metrics. The method Call must not block. The parameter server is the name of the server's
// file, so the number of names is limited. The parameter took is the duration of the call.
type Recorder interface {
	CountCall(server string, stage Stage, result Result, took time.Duration)
}

// NoRecorder records nothing.
type NoRecorder struct{}

// CountCall does nothing.
func (NoRecorder) CountCall(string, Stage, Result, time.Duration) {}

// States returns the states of all files in the directory, in the order in which the agent calls their servers. It
// leaves out the file that the agent itself wrote. The error is the error of the last read of the directory.
func (s *Servers) States() ([]api.HookServer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.opts.Now()
	var out []api.HookServer
	for _, name := range s.callOrder {
		if f := s.files[name]; f != nil && !errors.Is(f.err, errOwnSocket) {
			out = append(out, f.state(now))
		}
	}
	return out, s.err
}

// state describes the file and its server for reports.
func (f *file) state(now time.Time) api.HookServer {
	st := api.HookServer{File: f.name}
	var wrong []string
	switch {
	case f.err != nil && f.server != nil:
		wrong = append(wrong, f.err.Error()+"; the earlier content of the file stays in force")
	case f.err != nil:
		wrong = append(wrong, f.err.Error())
	}
	if len(f.unknownStages) > 0 {
		wrong = append(wrong, fmt.Sprintf("the agent ignores unknown stages: %s", shorten(strings.Join(f.unknownStages, ", "))))
	}
	if srv := f.server; srv != nil {
		st.InForce, st.Endpoint, st.Policy = true, srv.registration.Endpoint, string(srv.registration.Policy)
		for _, stage := range srv.registration.Stages {
			st.Stages = append(st.Stages, string(stage))
		}
		l := srv.connection
		l.mu.Lock()
		st.Calls, st.Failed = l.calls, l.failed
		st.Suspended = l.breaker.IsOpen(now)
		if l.lastErr != nil {
			wrong = append(wrong, l.lastErr.Error())
		}
		l.mu.Unlock()
	}
	st.Error = strings.Join(wrong, "; ")
	return st
}
