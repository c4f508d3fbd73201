package faults

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/socket"
)

// pause is the length of a delay, like the delay of a busy peer.
const pause = 2 * time.Millisecond

// Faults of calls on sockets and connections.
var (
	dialFaults   = errnoFaults(syscall.ECONNREFUSED, syscall.EMFILE)
	acceptFaults = errnoFaults(syscall.EMFILE, syscall.ENOBUFS)
	readFaults   = []Fault{
		{Kind: "delay", Delay: pause}, {Kind: "delay", Delay: pause}, {Kind: "delay", Delay: pause},
		{Kind: "ECONNRESET", Err: syscall.ECONNRESET, Broken: true}, {Kind: "time-out", Err: os.ErrDeadlineExceeded, Broken: true},
		{Kind: "closed", Err: net.ErrClosed, Broken: true},
	}
	writeFaults = append([]Fault{{Kind: "short write, EPIPE", Err: syscall.EPIPE, Short: true, Broken: true}}, readFaults...)
)

// Dial returns a Dialer whose calls, and whose connections' calls, fail as the plan says. In the counts, the names of
// these calls begin with the parameter name.
func Dial(p *Plan, name string) socket.Dialer {
	return func(ctx context.Context, path string) (net.Conn, error) {
		if f := p.next(name+" dial", dialFaults); f.Err != nil {
			return nil, opError("dial", f.Err)
		}
		c, err := socket.Dialer(nil).Dial(ctx, path)
		if err != nil {
			return nil, err
		}
		return &conn{c, p, name}, nil
	}
}

// WrapListener returns a function that wraps a listener. Calls on the wrapped listener and on its connections fail as the
// plan says. In the counts, the names of these calls begin with the parameter name.
func WrapListener(p *Plan, name string) func(net.Listener) net.Listener {
	return func(l net.Listener) net.Listener { return &listener{l, p, name} }
}

// opError returns the error with which package net reports that an operation on a socket failed.
func opError(op string, err error) error {
	if e, ok := err.(syscall.Errno); ok { //nolint:errorlint // the errors of the fault tables are not wrapped
		err = os.NewSyscallError(op, e)
	}
	return &net.OpError{Op: op, Net: "unix", Err: err}
}

// listener is a wrapped listener whose calls fail as the plan says.
type listener struct {
	net.Listener
	plan *Plan
	name string
}

func (l *listener) Accept() (net.Conn, error) {
	if f := l.plan.next(l.name+" accept", acceptFaults); f.Err != nil {
		return nil, opError("accept", f.Err)
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c, l.plan, l.name}, nil
}

// conn is a wrapped connection whose calls fail as the plan says.
type conn struct {
	net.Conn
	plan *Plan
	name string
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.fail("read", c.plan.next(c.name+" read", readFaults), nil); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	f := c.plan.next(c.name+" write", writeFaults)
	n := 0
	if err := c.fail("write", f, func() { n, _ = c.Conn.Write(p[:len(p)/2]) }); err != nil {
		return n, err
	}
	return c.Conn.Write(p)
}

// fail carries out a fault, and returns its error. If there is an error, fail closes the connection, so that the peer
// notices the fault. For a short write, it first calls writeHalf, which may be nil.
func (c *conn) fail(op string, f Fault, writeHalf func()) error {
	if f.Delay > 0 {
		<-time.NewTimer(f.Delay).C
	}
	if f.Err == nil {
		return nil
	}
	if f.Short && writeHalf != nil {
		writeHalf()
	}
	_ = c.Conn.Close() // the error of the fault is more important than the error of Close
	return opError(op, f.Err)
}

// Close closes the connection. It closes the connection even if the plan makes Close return an error.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if f := c.plan.next(c.name+" close", errnoFaults(syscall.EIO)); f.Err != nil {
		return opError("close", f.Err)
	}
	return err
}
