/* tls_certificate.c - names and dates of certificates, by OpenSSL. */
#include "io/tls_certificate.h"

#include "io/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { DATE_TEXT = 40 };

static void print_name(const GENERAL_NAME *name, char *text, size_t text_bytes)
{
    const ASN1_STRING *value = name->type == GEN_IPADD ? name->d.iPAddress : name->d.ia5;
    const int bytes = ASN1_STRING_length(value);
    text[0] = '\0';
    if (name->type == GEN_DNS || name->type == GEN_URI)
        snprintf(text, text_bytes, "%.*s", bytes, (const char *)ASN1_STRING_get0_data(value));
    else if (name->type == GEN_IPADD && (bytes == 4 || bytes == 16))
        inet_ntop(bytes == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(value), text, (socklen_t)text_bytes);
    for (char *at = text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

void ddl_certificate_names(const X509 *certificate, char text[DDL_CERTIFICATE_NAMES_TEXT])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    snprintf(text, DDL_CERTIFICATE_NAMES_TEXT, "nobody");
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && used < DDL_CERTIFICATE_NAMES_TEXT - 1; i++) {
        char name[DDL_CERTIFICATE_NAMES_TEXT];
        print_name(sk_GENERAL_NAME_value(names, i), name, sizeof name);
        if (name[0] == '\0')
            continue;
        int more =
            snprintf(text + used, DDL_CERTIFICATE_NAMES_TEXT - used, "%s%s", used > 0 ? ", " : "", name);
        used += (size_t)more;
    }
    GENERAL_NAMES_free(names);
}

static bool has_uri(const X509 *certificate, const char *uri)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        const size_t bytes = (size_t)ASN1_STRING_length(name->d.ia5);
        found = bytes == strlen(uri) && memcmp(ASN1_STRING_get0_data(name->d.ia5), uri, bytes) == 0;
    }
    GENERAL_NAMES_free(names);
    return found;
}

bool ddl_certificate_is_for(X509 *certificate, const char *name)
{
    ddl_address numeric;
    if (strstr(name, "://") != NULL)
        return has_uri(certificate, name);
    if (ddl_address_parse(name, 0, &numeric))
        return X509_check_ip_asc(certificate, name, 0) == 1;
    return X509_check_host(certificate, name, 0,
                           X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
                           NULL) == 1;
}

static void date_of(const ASN1_TIME *time, char text[DATE_TEXT])
{
    BIO *memory = BIO_new(BIO_s_mem());
    int bytes = 0;
    if (memory != NULL && ASN1_TIME_print(memory, time) == 1)
        bytes = BIO_read(memory, text, DATE_TEXT - 1);
    BIO_free(memory);
    text[bytes > 0 ? bytes : 0] = '\0';
}

void ddl_certificate_describe(const X509 *certificate, char text[DDL_CERTIFICATE_DESCRIPTION_TEXT])
{
    char names[DDL_CERTIFICATE_NAMES_TEXT], from[DATE_TEXT], to[DATE_TEXT];
    ddl_certificate_names(certificate, names);
    date_of(X509_get0_notBefore(certificate), from);
    date_of(X509_get0_notAfter(certificate), to);
    snprintf(text, DDL_CERTIFICATE_DESCRIPTION_TEXT, "for %s, valid from %s to %s", names, from, to);
}

int ddl_certificate_check_dates(const X509 *certificate)
{
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        return X509_V_ERR_CERT_NOT_YET_VALID;
    return X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0 ? X509_V_ERR_CERT_HAS_EXPIRED
                                                                      : X509_V_OK;
}

void ddl_certificate_explain(const X509 *peer, const X509 *certificate, int code, const char *wanted,
                             const char *ca, char text[DDL_CERTIFICATE_PROBLEM_TEXT])
{
    char names[DDL_CERTIFICATE_NAMES_TEXT] = "?", date[DATE_TEXT] = "?";
    if (peer != NULL)
        ddl_certificate_names(peer, names);
    switch (code) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        snprintf(text, DDL_CERTIFICATE_PROBLEM_TEXT,
                 "its certificate is for %s, not for %s; names count only where they are subject alternative "
                 "names",
                 names, wanted);
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        date_of(X509_get0_notAfter(certificate), date);
        snprintf(text, DDL_CERTIFICATE_PROBLEM_TEXT, "the certificate of %s expired on %s", names, date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        date_of(X509_get0_notBefore(certificate), date);
        snprintf(text, DDL_CERTIFICATE_PROBLEM_TEXT, "the certificate of %s is not valid before %s", names,
                 date);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        snprintf(text, DDL_CERTIFICATE_PROBLEM_TEXT,
                 "the certificate of %s is not signed by an authority in %s (%s)", names, ca,
                 X509_verify_cert_error_string(code));
        break;
    default:
        snprintf(text, DDL_CERTIFICATE_PROBLEM_TEXT, "the certificate of %s does not do: %s", names,
                 X509_verify_cert_error_string(code));
    }
}
