// Package wire is the HTTP protocol between the test on the host and the helper program (test/vm/guest) in the virtual
// machine. It has these requests:
//
//	GET  /ready                           the guest is up
//	POST /exec                            runs a Command; the answer is a Result
//	GET  /file?path=                      returns a file's content
//	PUT  /file?path=&mode=                writes a file atomically
//	GET  /tar?path=&path=                 returns a tar of the regular files below the paths, for logs
//	POST /clock?ns=                       sets the clock, which stood still while the machine was a snapshot
//	GET  /dial?network=&address=          becomes a connection to a socket in the guest
package wire

import "time"

// Port is the TCP port of the helper program in the guest.
const Port = 7000

// Upgrade is the protocol to which a /dial request upgrades its HTTP connection.
const Upgrade = "stream"

// Command is a program to run in the guest.
type Command struct {
	Argv    []string
	Env     []string // added to the environment of the helper program
	Dir     string   // the working directory of the program
	Stdin   []byte
	Timeout time.Duration // 0 means two minutes
	Log     string        // if not "", the program runs in the background, in its own session, with its output in this file
}

// Result is the result of a Command. If a background program starts, only PID is set.
type Result struct {
	Code           int // the exit code; 124 after the timeout, 126 if the program did not start, 128 plus the signal that killed it
	PID            int
	Stdout, Stderr string
	Err            string // why the program did not start or was killed; "" if it exited by itself
}
