// Package wire is the protocol between the driver on the host and the agent in the guest, over HTTP:
//
//	GET  /ready                           the guest is up
//	POST /exec                            a Command; the answer is a Result
//	GET  /file?path=                      a file's content
//	PUT  /file?path=&mode=                writes a file, in one step
//	GET  /tar?path=&path=                 regular files below the paths, for logs
//	POST /clock?ns=                       sets the clock, which stood still in a snapshot
//	GET  /dial?network=&address=          becomes a connection to a socket in the guest
package wire

import "time"

// Port is the port of the agent in the guest.
const Port = 7000

// Upgrade is the protocol that /dial changes to.
const Upgrade = "stream"

// Command is a program to run. With Log it runs in the background, in its own session, with its output in
// that file.
type Command struct {
	Argv    []string
	Env     []string // added to the agent's environment
	Dir     string
	Stdin   []byte
	Timeout time.Duration // 0 means two minutes
	Log     string
}

// Result is the result of a Command. For a background command only PID is set.
type Result struct {
	Code           int // the exit code; 124 after the timeout, 126 if it did not start, 128 plus the signal if it was killed
	PID            int
	Stdout, Stderr string
	Err            string // why it could not be run or was ended; empty if it exited by itself
}
