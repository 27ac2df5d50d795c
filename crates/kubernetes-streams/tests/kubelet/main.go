// Kubelet serves the commands and ports of the example "pod" with the code of kubelet and kube-apiserver. It prints its
// address, and ends when its input does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = 4 * time.Hour
	creation = 30 * time.Second
)

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	location := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	fmt.Println(location.Host)
	http.HandleFunc("/exec", func(w http.ResponseWriter, req *http.Request) { exec(w, req, location) })
	http.HandleFunc("/portforward", func(w http.ResponseWriter, req *http.Request) { forward(w, req, location) })
	fmt.Fprintln(os.Stderr, http.Serve(listener, nil))
}

func exec(w http.ResponseWriter, req *http.Request, location *url.URL) {
	query := req.URL.Query()
	isSet := func(name string) bool { return query.Get(name) == "1" || query.Get(name) == "true" }
	legacy := url.Values{"command": query["command"]}
	names := map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
	for name, old := range names {
		if isSet(name) {
			legacy.Set(old, "1")
		}
	}
	old := *req
	old.Form = legacy
	options, err := remotecommand.NewOptions(&old)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(req) {
		protocols := remotecommand.SupportedStreamingProtocols
		remotecommand.ServeExec(w, req, pod{}, "", "", "", query["command"], options, idle, creation, protocols)
		return
	}
	upstream := *location
	upstream.Path, upstream.RawQuery = req.URL.Path, req.URL.RawQuery
	streams := translator.Options{
		Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
	}
	translator.NewStreamTranslatorHandler(&upstream, nil, 0, streams).ServeHTTP(w, req)
}

func forward(w http.ResponseWriter, req *http.Request, location *url.URL) {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(req) {
		upstream := *location
		upstream.Path = req.URL.Path
		handler := proxy.NewUpgradeAwareHandler(&upstream, nil, false, true, responder{})
		translator.NewTunnelingHandler(handler).ServeHTTP(w, req)
		return
	}
	options, err := portforward.NewV4Options(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, req, pod{}, "pod", "uid", options, idle, creation, portforward.SupportedProtocols)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

type pod struct{}

func (pod) ExecInContainer(_ context.Context, _, _, _ string, command []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	err := run(command, in, out, errOut, resize)
	for _, stream := range []io.WriteCloser{out, errOut} {
		if stream != nil {
			_ = stream.Close()
		}
	}
	return err
}

func run(command []string, in io.Reader, out, errOut io.Writer, resize <-chan remotecommand.TerminalSize) error {
	var err error
	switch command[0] {
	case "cat":
		_, err = io.Copy(out, in)
	case "echo":
		_, err = io.WriteString(out, command[1])
	case "warn":
		_, err = io.WriteString(errOut, command[1])
	case "size":
		size := <-resize
		_, err = fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
	case "exit":
		code, _ := strconv.Atoi(command[1])
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	default:
		return errors.New("no such command: " + strings.Join(command, " "))
	}
	return err
}

func (pod) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	target, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer target.Close()
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(target, stream)
		_ = target.(*net.TCPConn).CloseWrite()
		done <- err
	}()
	go func() {
		_, err := io.Copy(stream, target)
		_ = stream.Close()
		done <- err
	}()
	<-done
	<-done
	return nil
}
