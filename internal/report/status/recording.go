package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// RecordingSource is a Source that can record events. The server answers requests for a recording only if its Source
// implements RecordingSource.
type RecordingSource interface {
	// Record writes the first line of a recording, and then one line for each new event, until ctx ends. Each line is a
	// JSON document. When Record has written all events that have occurred, it calls flush and waits for the next event.
	// withoutEnv means that the recording has no values of environment variables.
	Record(ctx context.Context, withoutEnv bool, w io.Writer, flush func() error) error
}

// serveRecording streams a recording until the client disconnects.
func serveRecording(w http.ResponseWriter, r *http.Request, can RecordingSource) {
	w.Header().Set("Content-Type", "application/jsonlines")
	out := http.NewResponseController(w)
	// An error means that the client has disconnected or that the agent ends. The client could not read an error message.
	_ = can.Record(r.Context(), r.URL.Query().Get("withoutEnv") == "true", timeoutWriter{w}, out.Flush)
}

// timeoutWriter is a ResponseWriter that sets a new deadline before each write.
type timeoutWriter struct{ http.ResponseWriter }

// Write writes a line. The client must read the line within clientTimeout.
func (p timeoutWriter) Write(line []byte) (int, error) {
	extendDeadline(p.ResponseWriter)
	return p.ResponseWriter.Write(line)
}

// maxLine limits the length of a line of a recording, in bytes. The first line is long, because it describes the node
// and everything that runs on it.
const maxLine = 256 << 20

// Record calls handle for the first line of a recording, and then for the line of each event. The lines have no
// newline. handle must not use a line after handle has returned. Record continues until ctx or the agent ends. It
// returns nil if ctx has ended, and an error if the agent has ended.
func (c *Client) Record(ctx context.Context, withoutEnv bool, handle func(line []byte) error) error {
	body, err := c.request(ctx, http.MethodGet, "recording", url.Values{"withoutEnv": {strconv.FormatBool(withoutEnv)}}, nil)
	if err != nil {
		return ignoreCancel(ctx, err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	for lines.Scan() {
		if err := handle(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return ignoreCancel(ctx, fmt.Errorf("read the recording: %w", err))
	}
	return ignoreCancel(ctx, &UnreachableError{Path: c.path, Hint: "the agent stopped: it closed the stream of events", Err: errors.New("the stream ended")})
}
