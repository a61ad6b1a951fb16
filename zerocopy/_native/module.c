/* The module ``zerocopy._native._core``: the compiled core's types and functions. */
#define ZEROCOPY_IMPORTS_NUMPY_API
#include "core.h"

/* The module that owns the static variables; a second import, or a second interpreter, may try to create another one. */
static PyObject *owner = NULL;

/* Fills a second module of this interpreter with the objects of the first one, which it keeps alive. */
static int
share_owner(PyObject *module)
{
    return PyDict_Merge(PyModule_GetDict(module), PyModule_GetDict(owner), 0) < 0
               ? -1
               : PyModule_AddObjectRef(module, "__owner__", owner);
}

/* Fills the module. */
static int
execute(PyObject *module)
{
    import_array1(-1);
    /* The core keeps its tables in static variables, so one interpreter of a process can use it. */
    static PyInterpreterState *first = NULL;
    PyInterpreterState *current = PyInterpreterState_Get();
    if (first != NULL && first != current) {
        PyErr_SetString(PyExc_ImportError, "the compiled core of zerocopy supports one interpreter per process");
        return -1;
    }
    if (owner != NULL && owner != module) {
        return share_owner(module);
    }
    first = current;
    owner = module;
    int (*adders[])(PyObject *) = {
        add_dtypes,       add_owner,        add_exporters,  add_buffer_exporter, add_exchange,
        add_importers,    add_routes,       add_route_table, add_trees,          add_convert,
        add_allocator,    add_arrow_tables, add_table_routes, add_matrix_routes, add_rows,
        add_producer_exporter, add_exchange_api, add_interface_exporter, add_table_plans, add_casts, add_records,
        add_pads,
    };
    for (size_t i = 0; i < sizeof(adders) / sizeof(adders[0]); i++) {
        if (adders[i](module) < 0) {
            return -1;
        }
    }
    /* zerocopy/_native/__init__.py compares this with the sources of an editable installation. */
    return PyModule_AddStringConstant(module, "__sources__", ZEROCOPY_SOURCES);
}

/* The module owns the references in static variables: without this, zerocopy's modules would outlive those that
   they use at the end of the interpreter. */
static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    if (module != owner) {
        return 0;
    }
    int status = visit_convert(visit, arg);
    status = status != 0 ? status : visit_route(visit, arg);
    return status != 0 ? status : visit_exchange_api(visit, arg);
}

static int
clear(PyObject *module)
{
    if (module == owner) {
        clear_convert();
        clear_route();
        clear_exchange_api();
    }
    return 0;
}

static void
free_module(void *module)
{
    clear(module);
    owner = module == owner ? NULL : owner;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "zerocopy._native._core",
    .m_doc = "The compiled core of zerocopy: conversions, tables and NumPy's allocator.",
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = free_module,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
