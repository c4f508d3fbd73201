package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/test/vm/wire"
)

// channel talks to the agent in a guest. It may be used from several goroutines.
type channel struct {
	address string
	client  *http.Client
}

func newChannel(address string) *channel {
	return &channel{address, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
}

func (c *channel) do(ctx context.Context, method, path string, query url.Values, body io.Reader) ([]byte, error) {
	target := "http://" + c.address + path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("guest: %s %s: %w", method, path, err)
	case answer.StatusCode == http.StatusNotFound:
		return nil, &fs.PathError{Op: "open", Path: query.Get("path"), Err: fs.ErrNotExist}
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("guest: %s %s: %s", method, path, bytes.TrimSpace(text))
	}
	return text, nil
}

// awaitReady waits until the guest's agent answers or the machine has ended.
func (c *channel) awaitReady(ctx context.Context, gone <-chan struct{}) error {
	return until(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-gone:
			return false, errors.New("the machine has ended")
		default:
		}
		// QEMU accepts connections before the guest does, so each attempt has a timeout.
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := c.do(try, http.MethodGet, "/ready", nil, nil)
		return err == nil, nil
	})
}

func (c *channel) exec(ctx context.Context, cmd wire.Command) (wire.Result, error) {
	text, err := json.Marshal(cmd)
	if err != nil {
		return wire.Result{}, err
	}
	answer, err := c.do(ctx, http.MethodPost, "/exec", nil, bytes.NewReader(text))
	if err != nil {
		return wire.Result{}, fmt.Errorf("%v: %w", cmd.Argv, err)
	}
	var r wire.Result
	return r, json.Unmarshal(answer, &r)
}

func (c *channel) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/file", url.Values{"path": {path}}, nil)
}

func (c *channel) put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	_, err := c.do(ctx, http.MethodPut, "/file", url.Values{"path": {path}, "mode": {fmt.Sprintf("%o", mode)}}, content)
	return err
}

func (c *channel) tar(ctx context.Context, paths ...string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/tar", url.Values{"path": paths}, nil)
}

// setClock sets the guest's clock to the host's time.
func (c *channel) setClock(ctx context.Context) error {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	_, err := c.do(ctx, http.MethodPost, "/clock", url.Values{"ns": {now}}, nil)
	return err
}

// dial connects to a socket in the guest.
func (c *channel) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	query := url.Values{"network": {network}, "address": {address}}
	target := "http://" + c.address + "/dial?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", wire.Upgrade)
	if err := req.Write(conn); err != nil {
		conn.Close()
		return nil, err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, req)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		conn.Close()
		return nil, fmt.Errorf("guest: %s %s: %s", network, address, bytes.TrimSpace(text))
	}
	return &stream{conn, reader}, nil
}

// stream first reads the bytes that came with the answer's header.
type stream struct {
	net.Conn
	reader *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) { return s.reader.Read(p) }
