package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// monitor is a connection to QEMU's control socket (the protocol QMP). It runs one command at a time.
type monitor struct {
	conn   net.Conn
	decode *json.Decoder
}

// reply is a message of QEMU: the answer to a command, or an event.
type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// openMonitor connects to the control socket, and makes QEMU accept commands.
func openMonitor(ctx context.Context, socket string) (*monitor, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn, json.NewDecoder(conn)}
	var greeting json.RawMessage
	if err := m.decode.Decode(&greeting); err != nil {
		conn.Close()
		return nil, fmt.Errorf("read the greeting on QEMU's control socket: %w", err)
	}
	if err := m.do("qmp_capabilities", nil, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return m, nil
}

func (m *monitor) close() { m.conn.Close() }

// do runs a command, and decodes QEMU's answer into result. If result is nil, do drops the answer. It drops the events
// that arrive before the answer.
func (m *monitor) do(command string, arguments, result any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := m.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := m.conn.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("send the command %s to QEMU: %w", command, err)
	}
	for {
		var r reply
		if err := m.decode.Decode(&r); err != nil {
			return fmt.Errorf("read QEMU's answer to the command %s: %w", command, err)
		}
		switch {
		case r.Event != "":
		case r.Error != nil:
			return fmt.Errorf("QEMU refuses the command %s: %s: %s", command, r.Error.Class, r.Error.Desc)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(r.Return, result)
		}
	}
}

// save stops the guest, and writes the state of the guest's memory and devices to a file.
func (m *monitor) save(ctx context.Context, file string) error {
	if err := m.do("stop", nil, nil); err != nil {
		return err
	}
	if err := m.do("migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 36}, nil); err != nil {
		return err
	}
	if err := m.do("migrate", map[string]any{"uri": "exec:cat >'" + file + "'"}, nil); err != nil {
		return err
	}
	return until(ctx, 20*time.Millisecond, func() (bool, error) {
		var s struct{ Status string }
		if err := m.do("query-migrate", nil, &s); err != nil {
			return false, err
		}
		if s.Status == "failed" || s.Status == "cancelled" {
			return false, errors.New("QEMU cannot save the guest's state: the migration has the status " + s.Status)
		}
		return s.Status == "completed", nil
	})
}

// resume waits until QEMU has loaded the state of a guest, and then lets the guest run. After the load, the guest is
// paused.
func (m *monitor) resume(ctx context.Context) error {
	err := until(ctx, 10*time.Millisecond, func() (bool, error) {
		var s struct{ Status string }
		if err := m.do("query-status", nil, &s); err != nil {
			return false, err
		}
		return s.Status != "inmigrate", nil
	})
	if err != nil {
		return err
	}
	return m.do("cont", nil, nil)
}

// until calls done until it returns true or an error, or until ctx ends. The parameter every is the pause between
// calls.
func until(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
