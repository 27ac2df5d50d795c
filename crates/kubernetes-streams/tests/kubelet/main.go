// Kubelet serves the commands and ports of the example "pod" with the code of kubelet. Protocols of newer clients are
// translated with the code of kube-apiserver. With an address as argument, all requests are sent to that server
// instead, as kube-apiserver sends them to a kubelet. Kubelet prints its address, and ends when its input does.
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
	fmt.Println(listener.Addr())
	upstream := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	server := server{upstream: upstream, isProxy: len(os.Args) > 1}
	if server.isProxy {
		upstream.Host = os.Args[1]
	}
	http.HandleFunc("/exec", server.exec)
	http.HandleFunc("/portforward", server.forward)
	fmt.Fprintln(os.Stderr, http.Serve(listener, nil))
}

type server struct {
	// The server of translated requests.
	upstream *url.URL
	isProxy  bool
}

// location returns the location of a request at the upstream server.
func (s *server) location(req *http.Request) *url.URL {
	location := *s.upstream
	location.Path, location.RawQuery = req.URL.Path, req.URL.RawQuery
	return &location
}

func (s *server) proxy(req *http.Request) http.Handler {
	return proxy.NewUpgradeAwareHandler(s.location(req), nil, false, true, responder{})
}

func (s *server) exec(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	options, err := options(query, req)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(req):
		streams := translator.Options{
			Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
		}
		translator.NewStreamTranslatorHandler(s.location(req), nil, 0, streams).ServeHTTP(w, req)
	case s.isProxy:
		s.proxy(req).ServeHTTP(w, req)
	default:
		protocols := remotecommand.SupportedStreamingProtocols
		remotecommand.ServeExec(w, req, pod{}, "", "", "", query["command"], options, idle, creation, protocols)
	}
}

// options parses the parameters of kube-apiserver as kubelet parses its own.
func options(query url.Values, req *http.Request) (*remotecommand.Options, error) {
	parameters := url.Values{}
	names := map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
	for name, parameter := range names {
		if query.Get(name) == "1" || query.Get(name) == "true" {
			parameters.Set(parameter, "1")
		}
	}
	request := *req
	request.Form = parameters
	return remotecommand.NewOptions(&request)
}

func (s *server) forward(w http.ResponseWriter, req *http.Request) {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(req) {
		translator.NewTunnelingHandler(s.proxy(req)).ServeHTTP(w, req)
		return
	}
	if s.isProxy {
		s.proxy(req).ServeHTTP(w, req)
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
