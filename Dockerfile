# farm-operator: one binary, no shell, no root, nothing to write.
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY apiserver apiserver
COPY cel cel
COPY load load
COPY oracle oracle
COPY standalone standalone
COPY test-cluster test-cluster
COPY src src
COPY tests tests
COPY examples examples
COPY benches benches
RUN cargo build --release --locked --package farm-operator --bin farm-operator

# The example `reflected`: docker build --target reflected .
FROM build AS build-reflected
RUN cargo build --release --locked --package farm-operator --example reflected

FROM gcr.io/distroless/cc-debian12:nonroot AS reflected
COPY --from=build-reflected /source/target/release/examples/reflected /reflected
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/reflected"]

# glibc and CA certificates, nothing else.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/farm-operator /farm-operator
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
EXPOSE 3000
ENTRYPOINT ["/farm-operator"]
